#pragma once

#include "actors/commands/bench.hpp"
#include "trainer/torch_learner.hpp"

namespace waggle {

command train_command();
/// `waggle bench train`.
bench_entry train_benchmark();

/// What the options say about the model. `peer`: whose samples; zero: the run's first.
learner_config learner_from(const run_options& options, const peer_id& peer);
/// The configuration of a peer that trains, on top of `base`, whose agreement it keeps.
struct node_config;
void add_training(node_config& base, const run_options& options, const peer_id& peer,
                  const std::filesystem::path& data_dir);

} // namespace waggle
