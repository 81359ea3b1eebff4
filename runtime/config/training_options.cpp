#include "runtime/agreement/data_identity.hpp"
#include "runtime/config/option_bindings.hpp"
#include "runtime/training/model_table.hpp"
#include "runtime/training/optimizer_table.hpp"
#include "runtime/training/schedule_text.hpp"

namespace waggle::option_bindings {

namespace {

using o = run_options;

constexpr const char* too_much = "more does not fit a peer";

/// Peers compare the files' contents, not their names.
std::string data_of(const run_options& x) {
  // The bytes that one sample needs: the context and the byte after it.
  return x.data == "synthetic" ? x.data : data_identity(x.data, x.context + 1);
}

/// Peers compare what the schedule means, not how it is written.
binding schedule() {
  return bound(&o::schedule,
               [](std::string_view v) -> result<std::string> {
                 auto parts = parse_schedule(v);
                 if (!parts)
                   return parts.error();
                 return text_of(*parts);
               })
    .agreed([](const run_options& x) {
      auto parts = parse_schedule(x.schedule);
      return parts ? agreed_text(std::move(*parts), x.warmup_epochs, x.epochs) : x.schedule;
    });
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
    {{"target-batch-size", "N", "Samples per optimizer step, summed over all peers.",
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
     {"schedule", "NAME",
      "Learning rate by epoch: NAME, or NAME:NUMBER=VALUE,NUMBER=VALUE, or several joined by /, of "
      "which each but the last needs epochs=N (linear:epochs=5/cosine). A schedule with a length "
      "lasts until the end of the run, unless epochs=N is set. "
        + schedule_help() + ".",
      schedule()},
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
     {"resume", "BOOL", "Keep checkpoints in --data-dir and resume from the newest one.",
      yes_no(&o::resume)},
     {"checkpoint-interval", "TIME",
      "Minimum time between two checkpoints, which are written at the end of an epoch.",
      duration(&o::checkpoint_interval)},
     {"linger", "TIME", "After --epochs: keep serving the state to other peers this long.",
      duration(&o::linger)}});
}

} // namespace waggle::option_bindings
