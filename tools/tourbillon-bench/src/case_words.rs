//! Describes a case in words, for the titles of tables.

use crate::metric::thousands;

/// Returns the operation that a case measures, without its numbers: "Arm and cancel one timer, driver has turned".
pub(crate) fn operation(scenario: &str, work: &str) -> String {
    let kind = work.split(['=', ',']).next().unwrap_or_default();
    let words = match (scenario, kind) {
        ("queue", "insert_remove") => "Queue alone: arm and cancel one timer",
        ("queue", "fifo") => "Queue alone: arm one timer, cancel the oldest",
        ("queue", "pop") => "Queue alone: expire all timers in steps of a millisecond",
        ("queue", "reschedule") => "Queue alone: give a random timer another deadline",
        ("queue", "slab") => "Queue alone: memory of a timer",
        ("churn", _) => return churn(work),
        ("contend", _) => "Arm and cancel on several threads at once",
        ("cross", _) => "Arm on one thread, cancel on another",
        ("reset", _) => "Push the deadline of a sleep later",
        ("fire", _) => "Fire sleeps that come due within two seconds",
        ("lateness", _) => "Tasks that sleep again and again",
        ("memory", _) => "Memory of pending sleeps",
        ("jobs", "live") => "Schedule and remove one job",
        ("jobs", "memory") => "Memory of jobs that wait",
        ("jobs", "spread") => "Run every job once a second",
        ("jobs", "cancel-named") => "Cancel all timers of one name",
        ("durable", "create") => "Create durable timers",
        ("durable", "churn") => "Create durable timers and cancel 95 of 100, 256 clients",
        ("durable", "far") => "Durable timers that are due in a month",
        ("durable", "lateness") => "Durable timers, 1,000 due a second",
        ("durable", "burst") => "Durable timers that are due within one second",
        ("durable", "idle") => "A process with durable timers and nothing to do",
        ("durable", "cancel-name") => "Cancel durable timers by name while they fire",
        ("durable", "takeover") => "Two nodes, of which one is killed",
        ("durable", "kill") => "Processes killed while clients create, cancel and reschedule",
        ("serve", "create") => "Service: create timers over HTTP",
        ("serve", "webhooks") => "Service: deliver by webhook",
        ("serve", "pull") => "Service: pull and acknowledge, eight workers",
        ("serve", "page") => "Service: the first page of the dashboard",
        ("serve", "idle") => "Service with nothing to do",
        ("io", "echo") => "Server that echoes messages on 100 connections",
        ("io", "delayed") => "Server that replies some time later",
        ("io", "idle") => "Runtime with nothing to do",
        ("virtual", "in-turn") => "Paused time, one task, one sleep after the other",
        ("virtual", "at-once") => "Paused time, one task, all sleeps at once",
        ("virtual", _) => "Paused time, several tasks",
        ("scale", _) => "Beside many pending sleeps",
        _ => scenario,
    };
    words.to_owned()
}

fn churn(work: &str) -> String {
    let window = work.split(',').find_map(|part| part.strip_prefix("window=")?.parse().ok());
    let operation = match window {
        Some(window) => format!("Arm one timer, cancel the oldest of {}", thousands(window)),
        None => "Arm and cancel one timer".to_owned(),
    };
    let driver = if work.contains("driver=turned") { "driver has turned" } else { "driver is new" };
    format!("{operation}, {driver}")
}

/// Returns the numbers and options of a case: "100,000 others pending".
pub(crate) fn size(scenario: &str, work: &str) -> String {
    let parts: Vec<String> = work.split(',').filter_map(|part| part_words(scenario, part)).collect();
    parts.join(", ")
}

fn part_words(scenario: &str, part: &str) -> Option<String> {
    let (name, value) = part.split_once('=')?;
    let count = value.parse().map_or_else(|_| value.to_owned(), thousands);
    let words = match (scenario, name) {
        ("churn", "driver" | "window") => return None,
        ("queue", "pending") => format!("{count} pending"),
        ("fire", "pending") => format!("{count} sleeps"),
        ("memory" | "scale", "pending") => format!("{count} pending"),
        ("durable" | "serve", "pending") if value != "0" => format!("{count} pending"),
        (_, "pending") if value == "0" => "nothing else pending".to_owned(),
        (_, "pending") => format!("{count} others pending"),
        (_, "tasks") if value == "1" => "one task".to_owned(),
        (_, "connections") if value == "1" => "one connection".to_owned(),
        ("serve", "due_per_s") => format!("{count} due a second"),
        ("serve", "due_at_once") => format!("{count} due at once"),
        ("serve", "max") => format!("up to {count} at a time"),
        (_, "tasks" | "threads" | "connections" | "sleeps") => format!("{count} {name}"),
        (_, "batch") => format!("in batches of {count}"),
        (_, "clients" | "timers" | "kills") => format!("{count} {name}"),
        (_, "cancel-named") => format!("{count} timers"),
        (_, "live" | "memory" | "spread") => format!("{count} jobs"),
        (_, "seconds") => format!("for {count} s"),
        (_, "timeout") if value == "none" => "no timeouts".to_owned(),
        (_, "timeout") => format!("timeout of {value} on reads"),
        _ => part.to_owned(),
    };
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_told_as_an_operation_and_its_size() {
        let told = |scenario, work| (operation(scenario, work), size(scenario, work));
        let expected = [
            (
                "churn",
                "pending=100000,driver=turned",
                "Arm and cancel one timer, driver has turned",
                "100,000 others pending",
            ),
            ("churn", "pending=0", "Arm and cancel one timer, driver is new", "nothing else pending"),
            ("contend", "threads=2", "Arm and cancel on several threads at once", "2 threads"),
            ("queue", "pop,pending=1000", "Queue alone: expire all timers in steps of a millisecond", "1,000 pending"),
            ("io", "echo,timeout=none", "Server that echoes messages on 100 connections", "no timeouts"),
            ("jobs", "live=1000000", "Schedule and remove one job", "1,000,000 jobs"),
            ("lateness", "tasks=1", "Tasks that sleep again and again", "one task"),
            ("durable", "create,clients=256", "Create durable timers", "256 clients"),
            ("serve", "create,connections=1", "Service: create timers over HTTP", "one connection"),
            ("new", "colour=red", "new", "colour=red"),
        ];
        for (scenario, work, operation, size) in expected {
            assert_eq!(told(scenario, work), (operation.to_owned(), size.to_owned()));
        }
    }
}
