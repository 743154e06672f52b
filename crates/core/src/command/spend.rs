use std::collections::BTreeSet;

use crate::command::{Outcome, Transition};
use crate::limits;
use crate::name::{IdempotencyKey, Tenant};
use crate::primitive::{LimiterCharge, spend};
use crate::rate::Rate;
use crate::rejection::{Problem, Rejection};
use crate::world::World;

/// Takes units from rate limiters: from all of them, or from none. An idempotency key is charged
/// once per window, however often the request is repeated.
#[derive(Clone, Debug)]
pub struct Spend {
    pub tenant: Tenant,
    pub key: IdempotencyKey,
    pub charges: Vec<Charge>,
}

/// The units to take from one rate limiter, and its rate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Charge {
    pub limiter: String,
    pub units: u32,
    pub rate: Rate,
}

impl Spend {
    pub(crate) fn apply(&self, world: &mut World) -> Transition {
        limits::TENANT.check(self.tenant.as_str())?;
        limits::SPEND_CHARGES.check(self.charges.len())?;
        let charges: Vec<LimiterCharge<'_>> =
            self.charges.iter().map(|c| self.limiter_charge(c)).collect();
        charges.iter().try_for_each(LimiterCharge::check)?;
        let mut named = BTreeSet::new();
        if !self.charges.iter().all(|charge| named.insert(&charge.limiter)) {
            let (field, problem) = (limits::LIMITER.field, Problem::Repeated);
            return Err(Rejection::Invalid { field, problem }.into());
        }
        charges.iter().for_each(|charge| charge.prefetch(world));
        charges.iter().try_for_each(|charge| spend(world, charge))?;
        Ok(Outcome::Spent)
    }

    fn limiter_charge<'a>(&'a self, charge: &'a Charge) -> LimiterCharge<'a> {
        let Charge { limiter, units, rate } = charge;
        LimiterCharge { tenant: &self.tenant, limiter, key: &self.key, units: *units, rate: *rate }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Sweep;
    use crate::testing::Stage;

    const RATE: Rate = Rate { limit: 3, window_ms: 32_000 };

    fn take(key: &str, units: u32) -> Spend {
        let charges = vec![Charge { limiter: "api".into(), units, rate: RATE }];
        Spend { tenant: Tenant::default(), key: key.into(), charges }
    }

    fn limited(stage: &mut Stage, spend: Spend) -> Option<u64> {
        match stage.run(spend) {
            Ok(Outcome::Spent) => None,
            Err(Rejection::RateLimited { retry_after_ms }) => Some(retry_after_ms),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_key_is_charged_once_in_a_window() {
        let mut stage = Stage::new();
        for _ in 0..5 {
            assert_eq!(limited(&mut stage, take("k1", 2)), None);
        }
        assert_eq!(limited(&mut stage, take("k2", 1)), None);
        let before = stage.tables.clone();
        assert_eq!(limited(&mut stage, take("k3", 1)), Some(33_000));
        assert_eq!(stage.tables, before, "a rejected charge leaves nothing behind");
        assert_eq!(stage.run(take("k1", 1)), Err(Rejection::Conflict));
        assert_eq!(limited(&mut stage, take("k1", 2)), None, "a charged key is not charged again");
        stage.later(33_000);
        assert_eq!(limited(&mut stage, take("k3", 3)), None);
    }

    /// A charge counts for slightly longer than the window, and its key is retained as long.
    #[test]
    fn a_key_is_not_charged_again_while_its_charge_counts() {
        let mut stage = Stage::new();
        stage.must(take("k1", 2));
        for _ in 0..2 {
            stage.later(16_400);
            assert_eq!(limited(&mut stage, take("k1", 2)), None);
        }
        assert_eq!(limited(&mut stage, take("k2", 1)), None);
        stage.later(200);
        assert_eq!(limited(&mut stage, take("k1", 2)), None, "then it is charged again");
        assert!(limited(&mut stage, take("k3", 1)).is_some());
    }

    #[test]
    fn all_or_none() {
        let mut stage = Stage::new();
        stage.must(take("k1", 3));
        let mut both = take("k2", 1);
        both.charges.insert(0, Charge { limiter: "mail".into(), units: 1, rate: RATE });
        let before = stage.tables.clone();
        assert!(limited(&mut stage, both).is_some());
        assert_eq!(stage.tables, before, "the charge of mail was undone");
    }

    #[test]
    fn expired_charges_are_swept() {
        let mut stage = Stage::new();
        stage.must(take("k1", 3));
        stage.later(33_000);
        stage.must(Sweep::default());
        assert_eq!(stage.tables.rows().count(), 0);
    }

    #[test]
    fn bad_input_is_rejected_by_name() {
        let mut stage = Stage::new();
        let twice = |spend: Spend| Spend {
            charges: [spend.charges.clone(), spend.charges].concat(),
            ..spend
        };
        for (field, spend) in [
            (
                "limiter",
                Spend {
                    charges: vec![Charge { limiter: String::new(), units: 1, rate: RATE }],
                    ..take("k", 1)
                },
            ),
            ("units", take("k", 0)),
            ("units", take("k", 4)),
            (
                "limiter",
                Spend {
                    charges: vec![Charge { limiter: "requests/p".into(), units: 1, rate: RATE }],
                    ..take("k", 1)
                },
            ),
            ("idempotency_key", take("", 1)),
            ("charges", Spend { charges: vec![], ..take("k", 1) }),
            ("limiter", twice(take("k", 1))),
            ("tenant", Spend { tenant: "".into(), ..take("k", 1) }),
        ] {
            let before = stage.tables.clone();
            match stage.run(spend) {
                Err(Rejection::Invalid { field: found, .. }) => assert_eq!(found, field),
                other => panic!("{field}: {other:?}"),
            }
            assert_eq!(stage.tables, before);
        }
    }
}
