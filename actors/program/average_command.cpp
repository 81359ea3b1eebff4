// A bare peer without a model: each round it averages a deterministic vector and prints one JSON
// line.

#include <cstdio>

#include <nlohmann/json.hpp>

#include "actors/guard.hpp"
#include "actors/program/commands.hpp"
#include "actors/program/node_options.hpp"
#include "actors/program/peer_process.hpp"
#include "runtime/cli/average_vector.hpp"
#include "runtime/cli/signals.hpp"
#include "runtime/config/agreed_options.hpp"
#include "runtime/crypto/digest.hpp"

namespace waggle {

struct next_round {};

namespace {

using driver_actor = caf::typed_actor<caf::reacts_to<next_round>>;

struct driver_state {
  static inline const char* name = "average-driver";
  std::uint64_t rounds = 0;
};

/// The `gather` text of each member that sent one.
nlohmann::ordered_json gathered_of(const round_report& report) {
  auto texts = nlohmann::ordered_json::object();
  for (const auto& [peer, text] : report.gathered)
    if (!text.empty())
      texts[to_string(peer)] = text;
  return texts;
}

void print(const round_report& report) {
  nlohmann::ordered_json line;
  bool failed = report.outcome == round_outcome::failed;
  line["round"] = report.round.is_zero() ? nlohmann::ordered_json(nullptr)
                                         : nlohmann::ordered_json(to_string(report.round));
  line["contributors"] = nlohmann::ordered_json::array();
  for (const auto& peer : report.contributors)
    line["contributors"].push_back(to_string(peer));
  line["weight_sum"] = report.weight_sum;
  if (auto texts = gathered_of(report); !texts.empty())
    line["gathered"] = std::move(texts);
  line["digest"] = failed || !report.values
                     ? nlohmann::ordered_json(nullptr)
                     : nlohmann::ordered_json(
                       to_string(sha256(as_string_view(std::as_bytes(std::span{*report.values})))));
  line["seconds"] = report.matchmaking_seconds + report.allreduce_seconds;
  line["allreduce_seconds"] = report.allreduce_seconds;
  line["recovery_seconds"] = report.recovery_seconds;
  line["outcome"] = to_string(report.outcome);
  line["reason"] = report.why.code == ec::none ? nlohmann::ordered_json(nullptr)
                                               : nlohmann::ordered_json(to_string(report.why.code));
  if (!report.why.detail.empty())
    line["detail"] = report.why.detail;
  std::printf("%s\n",
              line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace).c_str());
  std::fflush(stdout);
}

driver_actor::behavior_type driver(driver_actor::stateful_pointer<driver_state> self,
                                   node_context ctx, run_options options, averager_actor averager,
                                   report_relay_actor reports,
                                   std::shared_ptr<std::atomic<bool>> finished) {
  end_on_exception(self, ctx);
  auto values = average_vector_of(ctx.record.id, options.elements, *ctx.vectors);
  self->send(self, next_round{});
  auto ended = [self, options, reports, finished](const round_report& report) {
    print(report);
    round_ended event{report};
    event.report.values.reset();
    self->send(reports, std::move(event));
    if (options.rounds != 0 && ++self->state.rounds >= options.rounds)
      *finished = true;
    else
      self->send(self, next_round{});
  };
  return {[self, options, averager, values, ended, ctx](next_round) {
    average_vector question{.weight = options.weight,
                            .deadline = options.averaging_timeout,
                            .expected_peers = static_cast<std::uint32_t>(options.expected_peers),
                            .reuse_group = options.reuse_group,
                            .gather = options.gather,
                            .alpha = options.averaging_alpha,
                            .deltas = options.deltas};
    if (options.auxiliary)
      question.elements = values->size();
    else
      question.values = values;
    self->request(averager, options.averaging_timeout + 10s, std::move(question))
      .then(ended, [self, ctx, ended](const caf::error& why) {
        round_report report{.why = from_caf(why)};
        if (report.why.code == ec::shutting_down)
          return;
        ended(report);
      });
  }};
}

int run_average(const run_options& options) {
  hold_signals();
  auto process = peer_process::prepare(options);
  if (!process)
    return bad_usage(process.error().detail);
  auto& p = **process;
  auto config = p.base_config();
  auto agreement = averaging_agreement(options, protocol_version);
  if (!agreement)
    return p.refuse(agreement.error().detail);
  config.agreement = std::make_shared<const run_agreement>(std::move(*agreement));
  config.averaging = averaging_from(options, "vector", "vector", config.agreement->hash());
  auto peer = p.start(config);
  if (!peer)
    return p.refuse(peer.error().detail);
  p.print_start(config, *peer);
  auto finished = std::make_shared<std::atomic<bool>>(false);
  auto worker = p.system().spawn<caf::detached>(driver, peer->ctx, options, peer->parts.averager,
                                                peer->parts.reports, finished);
  auto code = p.run_until_done(*peer, [finished] { return finished->load(); });
  caf::anon_send_exit(worker, caf::exit_reason::user_shutdown);
  return code;
}

} // namespace

command average_command() {
  return {"average",
          "A bare peer that averages a vector round after round: for scripts and experiments.",
          "Prints one JSON line per round: round, contributors, weight_sum, digest of the "
          "resulting bytes,\n"
          "seconds, outcome (complete, shrunk, failed), reason. In two shells:\n"
          "  waggle average --listen 127.0.0.1:7700 --rounds 3\n"
          "  waggle average --listen 127.0.0.1:0 --initial-peers 127.0.0.1:7700 --rounds 3\n",
          {"run", "peer", "averaging", "average"},
          {},
          run_average};
}

} // namespace waggle
