// whoever notes an event ─► event_ring ─► (each second) ─► event_log ─► disk

#include "actors/watch/event_writer.hpp"

#include <utility>

#include "actors/guard.hpp"

namespace waggle {

namespace {

constexpr auto write_interval = 1s;

} // namespace

event_writer::event_writer(caf::actor_config& cfg, node_context ctx, std::shared_ptr<disk> files,
                           event_log_config config)
  : event_writer_actor::base(cfg), ctx_(std::move(ctx)), log_(std::move(files), std::move(config)) {
  end_on_exception(this, ctx_);
}

event_writer::behavior_type event_writer::make_behavior() {
  set_exit_handler([this](const caf::exit_msg& msg) {
    write(); // the last ones
    quit(msg.reason);
  });
  delayed_send(this, write_interval, write_events{});
  return {[this](write_events again) {
    write();
    if (!log_.ended())
      delayed_send(this, write_interval, again);
  }};
}

void event_writer::write() {
  auto written = log_.write_new(*ctx_.events);
  if (written)
    return;
  ctx_.log->warn("the event log ends here: {}", written.error().detail);
  // Strangers may read this; the log has the path.
  ctx_.note(
    watch::remark{watch::remark::what::notice,
                  "the event log ends here: " + std::string{to_string(written.error().code)}});
}

} // namespace waggle
