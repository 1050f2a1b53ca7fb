//! The free stretches of a list of ranges, in the order in which they are given out.

use std::collections::BTreeMap;

/// A stretch of addresses that belongs to exactly one range. Their numbers grow in giving-out order, so the pieces of
/// one range are numbered without gaps.
type PieceId = u32;

/// What is free in a list of ranges that may overlap: an address belongs to the first range that has it.
#[derive(Clone, Debug)]
pub(super) struct Gaps {
    /// Pieces by their first address, as (last address, number); no two have an address in common.
    pieces: BTreeMap<u128, (u128, PieceId)>,
    /// For each piece the range it belongs to.
    range_of_piece: Vec<usize>,
    /// Free stretches, (piece, first) to last: the first of them begins with the next address to give out.
    free: BTreeMap<(PieceId, u128), u128>,
}

impl Gaps {
    /// Everything in the ranges is free. Ranges are (first, last), used up in the order given.
    pub(super) fn new(ranges: &[(u128, u128)]) -> Self {
        let mut gaps = Self { pieces: BTreeMap::new(), range_of_piece: Vec::new(), free: BTreeMap::new() };
        for (range, &(first, last)) in ranges.iter().enumerate() {
            for (from, to) in gaps.uncovered(first, last) {
                let id = gaps.range_of_piece.len() as PieceId;
                gaps.pieces.insert(from, (to, id));
                gaps.range_of_piece.push(range);
                gaps.free.insert((id, from), to);
            }
        }
        gaps
    }

    /// The number of addresses, free or not.
    pub(super) fn size(&self) -> u128 {
        self.pieces.iter().fold(0, |sum: u128, (first, (last, _))| sum.saturating_add(last - first).saturating_add(1))
    }

    /// The range an address belongs to.
    pub(super) fn range_of(&self, at: u128) -> Option<usize> {
        self.piece_of(at).map(|id| self.range_of_piece[id as usize])
    }

    /// The next address to give out.
    pub(super) fn first(&self) -> Option<u128> {
        self.free.first_key_value().map(|((_, first), _)| *first)
    }

    /// The next address to give out from one range.
    pub(super) fn first_in(&self, range: usize) -> Option<u128> {
        let begin = self.range_of_piece.partition_point(|&r| r < range) as PieceId;
        let end = self.range_of_piece.partition_point(|&r| r <= range) as PieceId;
        self.free.range((begin, 0)..(end, 0)).next().map(|((_, first), _)| *first)
    }

    /// The address is no longer free; nothing happens if it was not.
    pub(super) fn remove(&mut self, at: u128) {
        let Some(id) = self.piece_of(at) else { return };
        let Some((&slot, end)) = self.free.range_mut((id, 0)..=(id, at)).next_back() else { return };
        let last = *end;
        if last < at {
            return;
        }
        if slot.1 < at {
            *end = at - 1;
        } else {
            self.free.remove(&slot);
        }
        if at < last {
            self.free.insert((id, at + 1), last);
        }
    }

    /// The address is free again and joins the stretches beside it.
    pub(super) fn insert(&mut self, at: u128) {
        let Some(id) = self.piece_of(at) else { return };
        let after = at.checked_add(1).and_then(|next| self.free.remove(&(id, next)));
        let last = after.unwrap_or(at);
        match self.free.range_mut((id, 0)..=(id, at)).next_back() {
            Some((_, end)) if *end >= at => {}
            Some((_, end)) if *end + 1 == at => *end = last,
            _ => {
                self.free.insert((id, at), last);
            }
        }
    }

    fn piece_of(&self, at: u128) -> Option<PieceId> {
        let (_, &(last, id)) = self.pieces.range(..=at).next_back()?;
        (at <= last).then_some(id)
    }

    /// The parts of a range that no earlier piece covers, lowest first.
    fn uncovered(&self, first: u128, last: u128) -> Vec<(u128, u128)> {
        let mut parts = Vec::new();
        let mut next = Some(first);
        let overlapping = self.pieces.iter().filter(|(from, (to, _))| **from <= last && first <= *to);
        for (&from, &(to, _)) in overlapping {
            if let Some(begin) = next
                && begin < from
            {
                parts.push((begin, from - 1));
            }
            next = to.checked_add(1);
        }
        parts.extend(next.filter(|&begin| begin <= last).map(|begin| (begin, last)));
        parts
    }
}
