//! Durations and times in bodies and queries.

use std::borrow::Cow;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::openapi::{KnownFormat, ObjectBuilder, RefOr, Schema, SchemaFormat, Type};
use utoipa::{PartialSchema, ToSchema};

use crate::durations::{Rfc3339, format_duration, parse_duration, parse_time};

/// A duration: a number with a unit (`1.5s`, `2h 30m`), or ISO 8601 (`PT1.5S`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DurationText(pub(crate) Duration);

/// A time as RFC 3339 has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TimeText(pub(crate) SystemTime);

/// What the documentation allows for durations: a part of what is understood.
const DURATION_PATTERN: &str =
    r"^([0-9]{1,9}(\.[0-9]{1,6})?(ms|s|m|h|d)|PT[0-9]{1,9}(\.[0-9]{1,6})?S|P[0-9]{1,4}D(T[0-9]{1,4}H)?)$";

impl Serialize for DurationText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format_duration(self.0))
    }
}

impl<'de> Deserialize<'de> for DurationText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<DurationText, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        parse_duration(&text).map(DurationText).map_err(serde::de::Error::custom)
    }
}

impl Serialize for TimeText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&Rfc3339(self.0))
    }
}

impl<'de> Deserialize<'de> for TimeText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<TimeText, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        parse_time(&text).map(TimeText).map_err(serde::de::Error::custom)
    }
}

impl PartialSchema for DurationText {
    fn schema() -> RefOr<Schema> {
        let text = ObjectBuilder::new()
            .schema_type(Type::String)
            .description(Some("A duration: `1.5s`, `250ms`, `2h`, `7d`, or ISO 8601 such as `PT1.5S`."))
            .pattern(Some(DURATION_PATTERN))
            .examples(["1.5s", "PT15M"]);
        text.into()
    }
}

impl ToSchema for DurationText {}

impl PartialSchema for TimeText {
    fn schema() -> RefOr<Schema> {
        let text = ObjectBuilder::new()
            .schema_type(Type::String)
            .format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime)))
            .description(Some("A time as RFC 3339 has it."))
            .examples(["2026-11-18T08:00:00Z"]);
        text.into()
    }
}

impl ToSchema for TimeText {}
