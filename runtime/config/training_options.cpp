#include "runtime/agreement/data_identity.hpp"
#include "runtime/config/option_bindings.hpp"
#include "runtime/training/model_table.hpp"
#include "runtime/training/optimizer_table.hpp"
#include "runtime/training/schedule.hpp"
#include "runtime/training/strategy.hpp"

namespace waggle::option_bindings {

namespace {

using o = run_options;

constexpr const char* too_much = "more does not fit a peer";

/// Peers compare the files' contents, not their names.
std::string data_of(const run_options& x) {
  // The bytes that one sample needs: the context and the byte after it.
  return x.data == "synthetic" ? x.data : data_identity(x.data, x.context + 1);
}

std::string strategies() {
  std::string out;
  for (const auto& row : strategy_table())
    out += (out.empty() ? "" : " ") + std::string{row.name} + ": " + std::string{row.help};
  return out;
}

result<std::string> device_name(std::string_view v) {
  bool indexed = v.starts_with("cuda:") && parse_whole(v.substr(5)).ok();
  if (v != "auto" && v != "cpu" && v != "cuda" && !indexed)
    return failure{ec::bad_config, "is not one of auto, cpu, cuda, cuda:N"};
  return std::string{v};
}

} // namespace

void add_training_options(std::vector<option_spec>& table) {
  add_group(
    table, "training",
    {{"strategy", "NAME", "How the peers train together. " + strategies(),
      one_of(&o::strategy, names_in(strategy_table())).agreed()},
     {"delay-grad-averaging", "BOOL",
      "collaborative: compute on while gradients are averaged; each update is one epoch late.",
      yes_no(&o::delay_grad_averaging).agreed()},
     {"delay-state-averaging", "BOOL",
      "Strategies that average parameters: compute on meanwhile, and add the change at its "
      "arrival.",
      yes_no(&o::delay_state_averaging).agreed()},
     {"averaging-steps-period", "N",
      "decentralized-*: average when the fastest peer has made so many steps.",
      whole(&o::averaging_steps_period, 1, many, "there has to be a step to average").agreed()},
     {"averaging-time-period", "TIME",
      "decentralized-*: begin rounds only at multiples of this, so that peers begin together.",
      duration(&o::averaging_time_period).agreed()},
     {"average-opt-statistics", "NAMES",
      "Statistics of the optimizer to average with the parameters, such as exp_avg_sq; auto: those "
      "of the strategy; or none.",
      text(&o::average_opt_statistics).agreed()},
     {"max-epoch-difference", "N",
      "Strategies that average parameters: a peer further behind downloads the state.",
      whole(&o::max_epoch_difference, 0, 1U << 20U, "more is another run")},
     {"target-batch-size", "N", "Samples per optimizer step, summed over all peers.",
      whole(&o::target_batch_size, 1, many, "an epoch needs at least one sample").agreed()},
     {"micro-batch", "N", "Samples of one forward and backward pass of this peer.",
      whole(&o::micro_batch, 1, 1U << 20U, "a step needs at least one sample")},
     {"epochs", "N", "Optimizer steps of the run; 0: until stopped.", whole(&o::epochs).agreed()},
     {"model", "NAME", listed(model_table()) + ".",
      one_of(&o::model, names_in(model_table())).agreed()},
     {"layers", "N", "Blocks of char-gpt, hidden layers of mlp.",
      whole(&o::layers, 1, 256, too_much).agreed()},
     {"width", "N", "Values per position (char-gpt) or per hidden layer (mlp).",
      whole(&o::width, 1, 65536, too_much).agreed()},
     {"heads", "N", "Attention heads of char-gpt; must divide --width.",
      whole(&o::heads, 1, 1024, too_much).agreed()},
     {"context", "N", "Context length of char-gpt in bytes.",
      whole(&o::context, 2, 65536, "a prediction needs something before it").agreed()},
     {"data", "PATH", "A text file, a folder of text files, or 'synthetic'.",
      text(&o::data).agreed(data_of)},
     {"optimizer", "NAME", listed(optimizer_table()) + ".",
      one_of(&o::optimizer, names_in(optimizer_table())).agreed()},
     {"lr", "X", "Peak learning rate.",
      real(&o::lr, {0, 1e6, "a negative rate would climb the loss",
                    "every optimizer diverges with a larger one"})
        .agreed()},
     {"schedule", "NAME", listed_with_notes(schedule_table()) + ".",
      one_of(&o::schedule, names_in(schedule_table())).agreed()},
     {"warmup-epochs", "N", "Epochs during which the learning rate rises linearly.",
      whole(&o::warmup_epochs).agreed()},
     {"weight-decay", "X", "Weight decay; decoupled for adamw.",
      real(&o::weight_decay, {0, 1e6, "a negative one would let the weights grow without end",
                              "a larger one would erase the weights in one step"})
        .agreed()},
     {"momentum", "X",
      "Momentum of " + listed(selected(optimizer_table(), &optimizer_row::takes_momentum)) + ".",
      real(&o::momentum, {0, 1, "a negative one would work against the gradients",
                          "from 1 on past gradients would never fade", true})
        .agreed()},
     {"device", "NAME", "auto, cpu, cuda or cuda:N.", bound(&o::device, device_name)},
     {"threads", "N", "Compute threads.", whole(&o::threads, 1, 1024, "at least one")},
     {"strict-target", "BOOL",
      "End an epoch only on samples that were reported, not on extrapolated ones.",
      yes_no(&o::strict_target)},
     {"step-interval", "TIME",
      "Minimum time between two passes: leaves the machine to other programs.",
      duration(&o::step_interval)},
     {"join-timeout", "TIME",
      "If addresses of other peers are known: search for the run this long before training alone.",
      duration(&o::join_timeout)},
     {"start-alone", "BOOL",
      "Start training if no address answers within --join-timeout, even without a state of the "
      "run.",
      yes_no(&o::start_alone)},
     {"on-split", "WHAT",
      "When cut off from most of the group: continue provisionally, or pause until it is back.",
      one_of(&o::on_split, {"continue", "pause"})},
     {"min-peers", "N", "Begin to train once this many peers, this one included, are in the group.",
      whole(&o::min_peers, 1, 4096, "more peers than a group may have would never be reached")},
     {"wait-for-peers", "TIME",
      "But wait for --min-peers at most this long; 0: as long as it takes.",
      duration(&o::wait_for_peers)},
     {"load-state-timeout", "TIME", "Deadline of one download of the run's state.",
      duration(&o::load_state_timeout, 1s, "a download needs some time")},
     {"shutdown-timeout", "TIME",
      "How long the last checkpoint may take when this peer is stopped.",
      duration(&o::shutdown_timeout)},
     {"report-expiration", "TIME",
      "A peer's progress report counts this long, unless there is another sign of the peer.",
      duration(&o::report_expiration, 1s, "reports would expire before they are read")},
     {"min-refresh-period", "TIME",
      "Peers that are not connected: read their progress at most this "
      "often,",
      duration(&o::min_refresh_period, 10ms, "the table would be read without pause")},
     {"max-refresh-period", "TIME", "at least this often,",
      duration(&o::max_refresh_period, 10ms, "the table would be read without pause")},
     {"default-refresh-period", "TIME", "and this often while no other peer is known.",
      duration(&o::default_refresh_period, 10ms, "the table would be read without pause")},
     {"expected-drift-peers", "X", "How many peers may join during an epoch,",
      real(&o::expected_drift_peers, {0, 4096, "peers cannot leave before they have joined",
                                      "that is more than a group may have"})},
     {"expected-drift-rate", "X", "or which share of the peers, if that is more.",
      real(&o::expected_drift_rate, {0, 100, "peers cannot leave before they have joined",
                                     "that is a hundred times as many as there are"})},
     {"performance-ema-alpha", "X",
      "Weight of the newest measurement in a peer's samples per second.",
      real(&o::performance_ema_alpha,
           {0.001, 1, "the speed would never change", "1 forgets all earlier measurements"})},
     {"resume", "BOOL", "Keep checkpoints in --data-dir and resume from the newest one.",
      yes_no(&o::resume)},
     {"checkpoint-interval", "TIME",
      "Minimum time between two checkpoints, which are written at the end of an epoch.",
      duration(&o::checkpoint_interval)},
     {"linger", "TIME", "After --epochs: keep serving the state to other peers this long.",
      duration(&o::linger)}});
}

} // namespace waggle::option_bindings
