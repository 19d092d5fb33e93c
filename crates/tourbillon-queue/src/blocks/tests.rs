use super::*;
use crate::place::PlaceKind;

const OWNER: ListOwner = ListOwner(7);

/// The position of each entry, by its number.
struct Positions(Vec<u32>);

impl Entries<usize> for Positions {
    fn place(&self, id: &usize) -> Place {
        Place::main(self.0[*id])
    }

    fn set_place(&mut self, id: &usize, place: Place) {
        let PlaceKind::Main(position) = place.kind() else { unreachable!("blocks are the main store") };
        self.0[*id] = position;
    }
}

/// A list of entries whose keys are their numbers.
fn list_of(count: usize) -> (Blocks<usize, usize>, List, Positions) {
    let (mut blocks, mut list) = (Blocks::new(), List::EMPTY);
    let positions = (0..count).map(|number| blocks.push(&mut list, OWNER, number, number)).collect();
    (blocks, list, Positions(positions))
}

#[test]
fn p7_the_items_left_in_a_list_after_most_have_gone_are_in_few_blocks() {
    const ALL: usize = 200 * BLOCK as usize;
    // Some items of each block stay, of some blocks more than of others.
    for share in [4, 8, 16, 64] {
        let stays = |number: usize| ((number as u64 * 0x9e37_79b9) >> 12).is_multiple_of(share);
        let left: Vec<usize> = (0..ALL).filter(|number| stays(*number)).collect();
        for at_once in [true, false] {
            let (mut blocks, mut list, mut positions) = list_of(ALL);
            if at_once {
                blocks.take_if(&mut list, |number| !stays(number), &mut positions);
            } else {
                for number in (0..ALL).filter(|number| !stays(*number)) {
                    blocks.remove(&mut list, positions.0[number], &mut positions);
                }
            }
            assert_eq!(blocks.check(&list, OWNER, &positions), Ok(left.len()));
            assert!(blocks.iter(&list).map(|(number, _)| number).eq(left.iter().copied()));
            // Any two neighbours hold more than half a block, except the first and the last block.
            let least = list.blocks().saturating_sub(2) / 2 * (BLOCK / 2 + 1);
            assert!(least as usize <= left.len(), "{} items in {} blocks", left.len(), list.blocks());
        }
    }
}

#[test]
fn counting_a_list_stops_at_the_limit_given() {
    for count in [0, 1, 2, BLOCK as usize, BLOCK as usize + 1, 5 * BLOCK as usize - 1] {
        let (blocks, list, _) = list_of(count);
        for most in 0..count + 2 {
            assert_eq!(blocks.len_up_to(&list, most), count.min(most));
        }
    }
}
