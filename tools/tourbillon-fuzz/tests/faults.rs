//! Tests that planted faults (`tourbillon-sim --break P1`) are parsed by their ids.

use tourbillon_sim::planted_fault::{ALL, PlantedFault};

#[test]
fn p6_faults_are_known_by_their_ids_in_either_case_and_by_nothing_else() {
    for fault in ALL.into_iter().chain([PlantedFault::P10]) {
        let id = format!("{fault:?}");
        assert_eq!((id.parse(), id.to_lowercase().parse()), (Ok(fault), Ok(fault)));
        for other in [format!("{id} "), format!("{id}0"), format!(" {id}"), format!("{id}\0"), id[1..].to_owned()] {
            let is_another = other == "P10";
            assert_eq!(other.parse::<PlantedFault>().is_ok(), is_another, "{other:?}");
        }
    }
    for bad in ["", "P", "P0", "P9", "P11", "P00", "P-1", "Ｐ1", "é", "all"] {
        let error = bad.parse::<PlantedFault>().expect_err(bad);
        assert!(error.contains("P1 to P8"), "{error}");
    }
}
