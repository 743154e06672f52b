//! Observes the attempts of the worker by its tracing events: the only way from outside.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber, span};

use crate::line::{Act, How, Line};
use crate::stage::Stage;

pub(crate) struct Listener(pub(crate) Arc<Stage>);

/// The fields of an event, as texts.
#[derive(Debug, Default)]
struct Fields(BTreeMap<&'static str, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }
}

impl Fields {
    fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }
}

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("windlass") && *metadata.level() <= Level::DEBUG
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        if *event.metadata().level() <= Level::WARN {
            eprintln!("{fields:?}");
        }
        match fields.get("message") {
            "attempt started" => self.0.reach("worker.claimed"),
            "attempt settled" => self.settled(&fields),
            _ => {}
        }
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

impl Listener {
    /// Handles the engine's answer to a settle of the worker, whose slot is not free yet.
    fn settled(&self, fields: &Fields) {
        let (id, epoch) = (fields.get("task"), fields.get("epoch"));
        let Ok(epoch) = epoch.parse() else {
            self.0.fail(format!("a settle without an epoch: {fields:?}"));
        };
        let act = match fields.get("command") {
            // A draining worker releases open leases, whatever the handler returned.
            "Release" => Some(Act { id: id.to_owned(), epoch, how: How::Release }),
            _ => self.0.returned(id, epoch),
        };
        // Without a handler result, the worker itself has failed the attempt.
        if let Some(act) = act {
            self.0.say(&Line::Settled { act, answer: None });
        }
        self.0.reach("worker.settled");
    }
}
