#pragma once

#include <filesystem>

#include "actors/node/node.hpp"
#include "runtime/config/run_options.hpp"
#include "runtime/training/learner.hpp"
#include "runtime/training/sample_draws.hpp"

namespace waggle {

/// Makes learners that clip, average gradients and follow a schedule as the options say, on top of
/// those that `make` makes. REQUIRES: the options were checked.
learner_factory with_training_options(learner_factory make, const run_options& options);

/// Adds the configuration of a peer that trains to `base`, and keeps its agreement. Its learner is
/// that of `make` with the training options. REQUIRES: the options were checked.
/// `evaluate`: makes what measures it on --eval-data. `draws`: what the learner draws of its
/// samples, if it counts them; its state then has their ledger.
void add_training_parts(node_config& base, const run_options& options, learner_factory make,
                        const std::filesystem::path& data_dir, evaluator_factory evaluate = {},
                        std::shared_ptr<sample_draws> draws = {});

/// What of the data may be a mistake: files that are not read, or are read as they are packed.
void log_data(spdlog::logger& log, const run_options& options);
/// One sentence about the end of the training and the remaining checkpoints.
std::string summary_of(const training_status& status, const run_options& options,
                       const std::filesystem::path& data_dir);

} // namespace waggle
