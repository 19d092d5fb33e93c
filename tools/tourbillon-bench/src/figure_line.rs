//! A figure as a line of JSON: the output of `--json`, and the input of plots and tables.

use serde::{Deserialize, Serialize};

/// One measured number.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub(crate) struct FigureLine {
    pub(crate) scenario: String,
    pub(crate) system: String,
    /// A comma-separated list of `name` or `name=value`.
    pub(crate) case: String,
    pub(crate) metric: String,
    /// The median of the rounds, if there were several.
    pub(crate) value: f64,
    /// The values of single rounds, in the order of the rounds; empty if they are not known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) rounds: Vec<f64>,
}

impl FigureLine {
    /// Formats the figure as JSON, without a newline.
    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("strings and a number can be written")
    }

    /// Parses a line of [`FigureLine::to_json`].
    pub(crate) fn from_json(text: &str) -> Result<FigureLine, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// Returns the value of a setting in the case: `Some("1000")` for `pending` in `fifo,pending=1000`.
    pub(crate) fn setting(&self, name: &str) -> Option<&str> {
        self.case.split(',').find_map(|part| part.strip_prefix(name)?.strip_prefix('='))
    }
}

/// Returns a figure without rounds, for tests.
#[cfg(test)]
pub(crate) fn line(scenario: &str, system: &str, case: &str, metric: &str, value: f64) -> FigureLine {
    let [scenario, system, case, metric] = [scenario, system, case, metric].map(str::to_owned);
    FigureLine { scenario, system, case, metric, value, rounds: Vec::new() }
}

/// Parses all lines of a text.
pub(crate) fn lines(text: &str) -> Result<Vec<FigureLine>, String> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let parse = |(number, line): (usize, &str)| {
        FigureLine::from_json(line).map_err(|error| format!("line {}: {error}", number + 1))
    };
    lines.map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_one_json_object_and_can_be_read_back() {
        let json =
            r#"{"scenario":"queue","system":"wheel","case":"pop,pending=1000","metric":"ns_per_op","value":5.8}"#;
        let line = FigureLine::from_json(json).expect("it is a line");
        assert_eq!((line.system.as_str(), line.value), ("wheel", 5.8));
        assert_eq!(line.to_json(), json);
    }

    #[test]
    fn the_values_of_single_rounds_are_optional() {
        let json = r#"{"scenario":"s","system":"t","case":"c","metric":"m","value":2.0,"rounds":[1.0,2.0,3.5]}"#;
        let line = FigureLine::from_json(json).expect("it is a line");
        assert_eq!(line.rounds, [1.0, 2.0, 3.5]);
        assert_eq!(line.to_json(), json);
    }

    #[test]
    fn a_case_is_a_list_of_settings() {
        let line = line("queue", "wheel", "fifo,pending=1000,driver=turned", "ns_per_op", 1.0);
        assert_eq!(line.setting("pending"), Some("1000"));
        assert_eq!(line.setting("driver"), Some("turned"));
        assert_eq!(line.setting("pend"), None);
        assert_eq!(line.setting("fifo"), None);
    }

    #[test]
    fn what_is_no_line_is_an_error_that_says_where() {
        assert!(lines("\n\n{}\n").is_err_and(|error| error.starts_with("line 3: ")));
        assert_eq!(lines(""), Ok(Vec::new()));
    }
}
