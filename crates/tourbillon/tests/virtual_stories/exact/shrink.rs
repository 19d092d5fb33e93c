//! The smallest form of a story that fails.

use super::{Part, Step, Story};

/// Removes from a story, one by one, the steps without which `fails` is still true.
pub(crate) fn shrink(story: &Story, fails: impl Fn(&Story) -> bool) -> Story {
    let mut story = story.clone();
    loop {
        let smaller = smaller(&story).find(|story| fails(story));
        match smaller {
            Some(smaller) => story = smaller,
            None => return story,
        }
    }
}

/// Iterates over the stories with one step less. A task whose spawning is left out stays, so that the instants of the others do not
/// change.
fn smaller(story: &Story) -> impl Iterator<Item = Story> {
    let mut all = Vec::new();
    for (part, Part { tasks }) in story.parts.iter().enumerate() {
        for (task, steps) in tasks.iter().enumerate() {
            for (step, of) in steps.iter().enumerate() {
                let mut without = story.clone();
                without.parts[part].tasks[task].remove(step);
                all.push(without);
                let mut with = |of| {
                    let mut other = story.clone();
                    other.parts[part].tasks[task][step] = of;
                    all.push(other);
                };
                match of {
                    Step::Interval { after, period, missed, steps } => {
                        for steps in one_less(steps) {
                            with(Step::Interval { after: *after, period: *period, missed: *missed, steps });
                        }
                    }
                    Step::Queue(steps) => one_less(steps).for_each(|steps| with(Step::Queue(steps))),
                    Step::BlockBeside(micros, steps) => {
                        one_less(steps).for_each(|steps| with(Step::BlockBeside(*micros, steps)));
                    }
                    _ => {}
                }
            }
        }
    }
    all.into_iter()
}

fn one_less<S: Clone>(steps: &[S]) -> impl Iterator<Item = Vec<S>> {
    (0..steps.len()).map(|left_out| [&steps[..left_out], &steps[left_out + 1..]].concat())
}
