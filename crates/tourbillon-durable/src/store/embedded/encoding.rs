//! The values of the embedded store: rows, history and totals as bytes.
//!
//! Rows, history entries and totals begin with the version of their encoding and end with a checksum of key and value, so that a value
//! under a wrong key is found too. Format 1 has version 1 of each. A change of an encoding gets a new version, and the old one is
//! still read (O5).

use std::sync::Arc;

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::bytes::{Decoder, Encoder, Malformed};
use super::layout;
use crate::spec::{FirstDue, MissedFires, Recurrence, RetryPolicy, TimerSpec};
use crate::store::row::{EndedAs, HistoryEntry, RowId, RowState, TimerRow};
use crate::store::shard::ShardId;

/// The version of totals and of history entries.
const VERSION: u8 = 1;
/// The version of rows: 2 has the number of deliveries that were given back.
const ROW_VERSION: u8 = 2;
const CHECKSUM: usize = 4;

/// What the store counts, and the numbers that it gives out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Totals {
    /// The number of the transaction that wrote this. Each transaction has the number after that of the one before it.
    pub(super) sequence: u64,
    /// The epoch of the last owner.
    pub(super) epoch: u64,
    pub(super) armed: u64,
    pub(super) claimed: u64,
    pub(super) dead: u64,
    /// How many occurrences have ended: the number of the next history entry.
    pub(super) ended: u64,
    /// Whether no node may own the store: a copy that has not been allowed to deliver yet.
    pub(super) is_paused: bool,
}

/// The value of an entry in a [`TimeIndex`](layout::TimeIndex).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TimeValue {
    pub(super) version: u64,
    pub(super) shard: ShardId,
    pub(super) epoch: u64,
}

/// Returns the row as the value of `key`.
pub(super) fn row(key: &[u8], row: &TimerRow) -> Vec<u8> {
    let mut out = Encoder(Vec::with_capacity(224 + row.spec.payload.len()));
    out.byte(ROW_VERSION);
    out.byte(state_tag(row.state) | u8::from(row.is_head) << 4);
    out.number(u64::from(row.shard.0));
    out.time(row.due);
    out.time(row.wake);
    out.number(row.version);
    out.number(u64::from(row.attempt));
    out.number(u64::from(row.returned));
    out.number(row.epoch);
    out.number(row.claim);
    out.option(row.left, Encoder::number);
    out.number(row.stands_for);
    out.time(row.created);
    out.option(row.replayed_at, Encoder::time);
    out.option(row.last_error.as_deref(), Encoder::text);
    spec(&mut out, &row.spec);
    seal(key, out)
}

/// Reads the value of `key`, which is the key of the row `id`.
pub(super) fn read_row(key: &[u8], id: RowId, value: &[u8]) -> Result<TimerRow, Malformed> {
    let (version, mut from) = unseal(key, value, ROW_VERSION)?;
    let flags = from.byte()?;
    let row = TimerRow {
        id,
        is_head: flags >> 4 == 1,
        state: read_state(flags & 0xf)?,
        shard: ShardId(from.small()?),
        due: from.time()?,
        wake: from.time()?,
        version: from.number()?,
        attempt: from.small()?,
        returned: if version >= 2 { from.small()? } else { 0 },
        epoch: from.number()?,
        claim: from.number()?,
        left: from.option(Decoder::number)?,
        stands_for: from.number()?,
        created: from.time()?,
        replayed_at: from.option(Decoder::time)?,
        last_error: from.option(Decoder::text)?,
        spec: Arc::new(read_spec(&mut from)?),
    };
    from.finish()?;
    Ok(row)
}

fn spec(out: &mut Encoder, spec: &TimerSpec) {
    out.text(&spec.namespace);
    out.option(spec.key.as_deref(), Encoder::text);
    out.option(spec.name.as_deref(), Encoder::text);
    out.text(&spec.kind);
    out.bytes(&spec.payload);
    out.option(spec.content_type.as_deref(), Encoder::text);
    match spec.first {
        FirstDue::At(due) => {
            out.byte(0);
            out.time(due);
        }
        FirstDue::After(delay) => {
            out.byte(1);
            out.duration(delay);
        }
        FirstDue::Next => out.byte(2),
    }
    match &spec.recurrence {
        Recurrence::Once => out.byte(0),
        Recurrence::Every(interval) => {
            out.byte(1);
            out.duration(*interval);
        }
        Recurrence::Cron { line, zone } => {
            out.byte(2);
            out.text(line);
            out.text(zone);
        }
    }
    out.option(spec.times, Encoder::number);
    out.option(spec.until, Encoder::time);
    match spec.missed {
        MissedFires::Once => out.byte(0),
        MissedFires::Skip { older_than } => {
            out.byte(1);
            out.duration(older_than);
        }
        MissedFires::All { at_most } => {
            out.byte(2);
            out.number(at_most);
        }
        MissedFires::DeadAfter(age) => {
            out.byte(3);
            out.duration(age);
        }
    }
    retry(out, &spec.retry);
}

fn read_spec(from: &mut Decoder<'_>) -> Result<TimerSpec, Malformed> {
    Ok(TimerSpec {
        namespace: from.text()?,
        key: from.option(Decoder::text)?,
        name: from.option(Decoder::text)?,
        kind: from.text()?,
        payload: from.bytes()?.into(),
        content_type: from.option(Decoder::text)?,
        first: match from.byte()? {
            0 => FirstDue::At(from.time()?),
            1 => FirstDue::After(from.duration()?),
            2 => FirstDue::Next,
            _ => return Err(Malformed),
        },
        recurrence: match from.byte()? {
            0 => Recurrence::Once,
            1 => Recurrence::Every(from.duration()?),
            2 => Recurrence::Cron { line: from.text()?, zone: from.text()? },
            _ => return Err(Malformed),
        },
        times: from.option(Decoder::number)?,
        until: from.option(Decoder::time)?,
        missed: match from.byte()? {
            0 => MissedFires::Once,
            1 => MissedFires::Skip { older_than: from.duration()? },
            2 => MissedFires::All { at_most: from.number()? },
            3 => MissedFires::DeadAfter(from.duration()?),
            _ => return Err(Malformed),
        },
        retry: read_retry(from)?,
    })
}

fn retry(out: &mut Encoder, retry: &RetryPolicy) {
    out.number(u64::from(retry.attempts));
    out.duration(retry.first);
    out.number(u64::from(retry.factor));
    out.duration(retry.longest);
    out.byte(retry.jitter_percent);
    out.option(retry.give_up_after, Encoder::duration);
}

fn read_retry(from: &mut Decoder<'_>) -> Result<RetryPolicy, Malformed> {
    Ok(RetryPolicy {
        attempts: from.small()?,
        first: from.duration()?,
        factor: from.small()?,
        longest: from.duration()?,
        jitter_percent: from.byte()?,
        give_up_after: from.option(Decoder::duration)?,
    })
}

/// Returns the value of an entry of a row in a time index.
pub(super) fn time_value(row: &TimerRow) -> Vec<u8> {
    let mut out = Encoder(Vec::with_capacity(4));
    out.number(row.version);
    out.number(u64::from(row.shard.0));
    out.number(row.epoch);
    out.0
}

pub(super) fn read_time_value(value: &[u8]) -> Result<TimeValue, Malformed> {
    let mut from = Decoder(value);
    let value = TimeValue { version: from.number()?, shard: ShardId(from.small()?), epoch: from.number()? };
    from.finish()?;
    Ok(value)
}

/// Returns the value of a head: the id of its row.
pub(super) fn head(id: RowId) -> Vec<u8> {
    let mut out = Vec::with_capacity(25);
    layout::push_id(&mut out, id);
    out
}

pub(super) fn read_head(value: &[u8]) -> Result<RowId, Malformed> {
    layout::parse_id(value).ok_or(Malformed)
}

/// Returns the history entry with this number as the value of `key`.
pub(super) fn history(key: &[u8], number: u64, entry: &HistoryEntry) -> Vec<u8> {
    let mut out = Encoder(Vec::with_capacity(128));
    out.byte(VERSION);
    out.number(number);
    out.bytes(&head(entry.id));
    out.byte(match entry.ended_as {
        EndedAs::Fired => 0,
        EndedAs::Cancelled => 1,
        EndedAs::Dead => 2,
        EndedAs::Skipped => 3,
    });
    out.time(entry.at);
    out.time(entry.due);
    out.number(u64::from(entry.attempts));
    out.text(&entry.namespace);
    out.option(entry.key.as_deref(), Encoder::text);
    out.option(entry.name.as_deref(), Encoder::text);
    out.text(&entry.kind);
    out.option(entry.error.as_deref(), Encoder::text);
    seal(key, out)
}

/// Reads a history entry, and its number.
pub(super) fn read_history(key: &[u8], value: &[u8]) -> Result<(u64, HistoryEntry), Malformed> {
    let (_, mut from) = unseal(key, value, VERSION)?;
    let number = from.number()?;
    let entry = HistoryEntry {
        id: read_head(from.bytes()?)?,
        ended_as: match from.byte()? {
            0 => EndedAs::Fired,
            1 => EndedAs::Cancelled,
            2 => EndedAs::Dead,
            3 => EndedAs::Skipped,
            _ => return Err(Malformed),
        },
        at: from.time()?,
        due: from.time()?,
        attempts: from.small()?,
        namespace: from.text()?,
        key: from.option(Decoder::text)?,
        name: from.option(Decoder::text)?,
        kind: from.text()?,
        error: from.option(Decoder::text)?,
    };
    from.finish()?;
    Ok((number, entry))
}

/// Returns the totals as the value of [`layout::TOTALS`].
pub(super) fn totals(totals: &Totals) -> Vec<u8> {
    let mut out = Encoder(Vec::with_capacity(64));
    out.byte(VERSION);
    let numbers = [totals.sequence, totals.epoch, totals.armed, totals.claimed, totals.dead, totals.ended];
    for number in numbers {
        out.number(number);
    }
    out.byte(u8::from(totals.is_paused));
    seal(layout::TOTALS, out)
}

pub(super) fn read_totals(value: &[u8]) -> Result<Totals, Malformed> {
    let (_, mut from) = unseal(layout::TOTALS, value, VERSION)?;
    let totals = Totals {
        sequence: from.number()?,
        epoch: from.number()?,
        armed: from.number()?,
        claimed: from.number()?,
        dead: from.number()?,
        ended: from.number()?,
        is_paused: from.flag()?,
    };
    from.finish()?;
    Ok(totals)
}

fn state_tag(state: RowState) -> u8 {
    match state {
        RowState::Armed => 0,
        RowState::Claimed => 1,
        RowState::Dead => 2,
    }
}

fn read_state(tag: u8) -> Result<RowState, Malformed> {
    match tag {
        0 => Ok(RowState::Armed),
        1 => Ok(RowState::Claimed),
        2 => Ok(RowState::Dead),
        _ => Err(Malformed),
    }
}

/// Appends the checksum.
fn seal(key: &[u8], out: Encoder) -> Vec<u8> {
    let mut value = out.0;
    let checksum = checksum(key, &value);
    value.extend_from_slice(&checksum);
    value
}

/// Verifies checksum and version, and returns the version and what is between them.
fn unseal<'a>(key: &[u8], value: &'a [u8], newest: u8) -> Result<(u8, Decoder<'a>), Malformed> {
    let (body, found) = value.split_last_chunk::<CHECKSUM>().ok_or(Malformed)?;
    match body.split_first() {
        Some((version, rest)) if (1..=newest).contains(version) && *found == checksum(key, body) => {
            Ok((*version, Decoder(rest)))
        }
        _ => Err(Malformed),
    }
}

fn checksum(key: &[u8], value: &[u8]) -> [u8; CHECKSUM] {
    let hash = xxh3_64_with_seed(value, xxh3_64(key));
    (hash as u32).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::id::TimerId;
    use crate::time::StoreTime;

    fn at(micros: u64) -> StoreTime {
        StoreTime::from_micros(micros)
    }

    fn full_row() -> TimerRow {
        let spec = TimerSpec {
            namespace: "shop".into(),
            key: Some("order 4711".into()),
            name: Some("kündin 7".into()),
            kind: "expire-order".into(),
            payload: b"\x00payload\xff"[..].into(),
            content_type: Some("application/json".into()),
            first: FirstDue::After(Duration::new(5, 7)),
            recurrence: Recurrence::Cron { line: "30 2 * * *".into(), zone: "Europe/Berlin".into() },
            times: Some(12),
            until: Some(StoreTime::MAX),
            missed: MissedFires::Skip { older_than: Duration::from_millis(1500) },
            retry: RetryPolicy { give_up_after: Some(Duration::MAX), ..RetryPolicy::default() },
        };
        TimerRow {
            id: RowId { timer: TimerId::from_u128(77), occurrence: 300 },
            shard: ShardId(255),
            is_head: true,
            state: RowState::Claimed,
            due: at(1_794_000_000_000_001),
            wake: at(1_794_000_000_000_002),
            version: 3,
            attempt: 2,
            returned: 1,
            epoch: 9,
            claim: u64::MAX,
            left: Some(4),
            stands_for: 5,
            created: at(1),
            replayed_at: Some(at(6)),
            last_error: Some("refused".into()),
            spec: Arc::new(spec),
        }
    }

    fn variants() -> Vec<TimerRow> {
        let full = full_row();
        let spec = |change: fn(&mut TimerSpec)| {
            let mut spec = (*full.spec).clone();
            change(&mut spec);
            TimerRow { spec: Arc::new(spec), ..full.clone() }
        };
        vec![
            TimerRow { state: RowState::Armed, is_head: false, left: None, replayed_at: None, ..full.clone() },
            TimerRow { state: RowState::Dead, last_error: None, ..full.clone() },
            spec(|spec| (spec.key, spec.name, spec.content_type) = (None, None, None)),
            spec(|spec| spec.first = FirstDue::At(StoreTime::MAX)),
            spec(|spec| (spec.first, spec.recurrence) = (FirstDue::Next, Recurrence::Every(Duration::MAX))),
            spec(|spec| (spec.recurrence, spec.missed) = (Recurrence::Once, MissedFires::Once)),
            spec(|spec| spec.missed = MissedFires::All { at_most: u64::MAX }),
            spec(|spec| spec.missed = MissedFires::DeadAfter(Duration::ZERO)),
            spec(|spec| (spec.times, spec.until, spec.retry.give_up_after) = (None, None, None)),
            full.clone(),
        ]
    }

    #[test]
    fn q1_every_row_is_read_as_it_was_written() {
        for wanted in variants() {
            let key = layout::row(wanted.id);
            assert_eq!(read_row(&key, wanted.id, &row(&key, &wanted)), Ok(wanted));
        }
    }

    #[test]
    fn q8_a_changed_byte_of_a_row_or_another_key_is_found() {
        let wanted = full_row();
        let key = layout::row(wanted.id);
        let value = row(&key, &wanted);
        for index in 0..value.len() {
            let mut damaged = value.clone();
            damaged[index] ^= 0x10;
            assert_eq!(read_row(&key, wanted.id, &damaged), Err(Malformed), "byte {index}");
            assert_eq!(read_row(&key, wanted.id, &value[..index]), Err(Malformed), "{index} bytes only");
        }
        let other = layout::row(RowId { occurrence: 301, ..wanted.id });
        assert_eq!(read_row(&other, wanted.id, &value), Err(Malformed));
    }

    /// The row of `full_row` in format 1.
    const FULL_ROW: &str = "\
        0111ff0181c0e8e5a2f4970382c0e8e5a2f49703030209ffffffffffffffffff010104050101060107726566757365640473686f70010a6f\
        72646572203437313101096bc3bc6e64696e20370c6578706972652d6f7264657209007061796c6f6164ff01106170706c69636174696f6e\
        2f6a736f6e010507020a33302032202a202a202a0d4575726f70652f4265726c696e010c0180f0d28bf0fe90c203010180cab5ee010a0100\
        02ac02003201ffffffffffffffffff01ff93ebdc03307e9adc\
        ";

    #[test]
    fn o5_rows_of_format_1_stay_readable() {
        let wanted = TimerRow { returned: 0, ..full_row() };
        let key = layout::row(wanted.id);
        let digits = FULL_ROW.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
        let value: Vec<u8> = digits.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect();
        assert_eq!(read_row(&key, wanted.id, &value), Ok(wanted));
    }

    #[test]
    fn totals_and_history_are_read_as_they_were_written() {
        let wanted = Totals { sequence: 1, epoch: 2, armed: 3, claimed: 4, dead: 5, ended: u64::MAX, is_paused: true };
        assert_eq!(read_totals(&totals(&wanted)), Ok(wanted));
        let key = layout::history(3);
        for ended_as in [EndedAs::Fired, EndedAs::Cancelled, EndedAs::Dead, EndedAs::Skipped] {
            let entry = full_row().history(ended_as, at(9));
            assert_eq!(read_history(&key, &history(&key, 103, &entry)), Ok((103, entry)));
        }
        let value = time_value(&full_row());
        assert_eq!(read_time_value(&value), Ok(TimeValue { version: 3, shard: ShardId(255), epoch: 9 }));
    }
}
