//! The column `plan`: what a timer asks for, besides what has columns of its own.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::spec::{FirstDue, MissedFires, Recurrence, RetryPolicy, TimerSpec};
use crate::time::StoreTime;

/// The JSON of the column. What has its default is left out. The SQL function `create_timer` writes the same form.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Plan {
    first: FirstDue,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    every: Option<Duration>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cron: Option<CronPlan>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    times: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<StoreTime>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    missed: Option<MissedFires>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retry: Option<RetryPolicy>,
}

#[derive(Serialize, Deserialize)]
struct CronPlan {
    line: String,
    zone: String,
}

/// The columns of a spec that are not in its plan.
pub(super) struct SpecColumns {
    pub(super) namespace: String,
    pub(super) key: Option<String>,
    pub(super) name: Option<String>,
    pub(super) kind: String,
    pub(super) payload: Arc<[u8]>,
    pub(super) content_type: Option<String>,
}

impl Plan {
    pub(super) fn of(spec: &TimerSpec) -> Plan {
        let (every, cron) = match &spec.recurrence {
            Recurrence::Once => (None, None),
            Recurrence::Every(interval) => (Some(*interval), None),
            Recurrence::Cron { line, zone } => (None, Some(CronPlan { line: line.clone(), zone: zone.clone() })),
        };
        Plan {
            first: spec.first,
            every,
            cron,
            times: spec.times,
            until: spec.until,
            missed: Some(spec.missed).filter(|missed| *missed != MissedFires::default()),
            retry: Some(spec.retry).filter(|retry| *retry != RetryPolicy::default()),
        }
    }

    /// Reads the column.
    ///
    /// `create_timer` takes numbers that are written as texts, such as `{"attempts": "3"}`, and a longest wait that is shorter than the first
    /// by less than a second. A row of an application must not end the nodes that read it, so both are read as what they mean.
    pub(super) fn parse(text: &str) -> Result<Plan, serde_json::Error> {
        let mut plan: Plan = serde_json::from_str(text).or_else(|error| {
            let mut plan: Value = serde_json::from_str(text)?;
            let policies = ["missed", "retry"].map(|policy| plan.get_mut(policy).map(numbers_of_texts));
            if policies.iter().any(Option::is_some) { serde_json::from_value(plan) } else { Err(error) }
        })?;
        if let Some(retry) = &mut plan.retry {
            retry.longest = retry.longest.max(retry.first);
        }
        Ok(plan)
    }

    pub(super) fn into_spec(self, columns: SpecColumns) -> TimerSpec {
        let recurrence = match (self.every, self.cron) {
            (Some(interval), _) => Recurrence::Every(interval),
            (None, Some(CronPlan { line, zone })) => Recurrence::Cron { line, zone },
            (None, None) => Recurrence::Once,
        };
        TimerSpec {
            namespace: columns.namespace,
            key: columns.key,
            name: columns.name,
            kind: columns.kind,
            payload: columns.payload,
            content_type: columns.content_type,
            first: self.first,
            recurrence,
            times: self.times,
            until: self.until,
            missed: self.missed.unwrap_or_default(),
            retry: self.retry.unwrap_or_default(),
        }
    }
}

/// Writes numbers in the place of texts that have nothing but digits.
fn numbers_of_texts(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Ok(number) = text.parse::<u64>() {
                *value = number.into();
            }
        }
        Value::Object(fields) => fields.values_mut().for_each(numbers_of_texts),
        _ => {}
    }
}
