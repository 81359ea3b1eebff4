#pragma once

#include "runtime/cli/bench.hpp"
#include "runtime/cli/commands.hpp"
#include "runtime/training/checkpoint_store.hpp"
#include "trainer/torch_learner.hpp"

namespace waggle {

command train_command();
/// `waggle export`.
command export_command();
/// `waggle bench train` and `loop`.
std::vector<bench_entry> train_benchmarks();

/// The newest checkpoint below a folder (checkpoints_below) that is undamaged; what is wrong with
/// later ones is said on standard error.
result<checkpoint_store::found> last_checkpoint(const std::filesystem::path& folder);

/// Whether `waggle train` accepts the options on this machine: its device and its data, too. Fails
/// with ec::bad_config and a sentence.
status check_for_training(const run_options& options);
/// See training_check.
result<model_facts> facts_of_model(const run_options& options, model_look how);
std::string unused_checkpoint(const run_options& options, const std::filesystem::path& data_dir);

/// Returns the learner configuration that the options describe. `peer` seeds the choice of samples.
learner_config learner_from(const run_options& options, const peer_id& peer);
/// Adds the configuration of a peer that trains such a learner to `base`, and keeps its agreement.
struct node_config;
void add_training(node_config& base, const run_options& options, const peer_id& peer,
                  const std::filesystem::path& data_dir);

} // namespace waggle
