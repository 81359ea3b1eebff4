#pragma once

#include <filesystem>

#include "actors/node/node.hpp"
#include "runtime/config/run_options.hpp"

namespace waggle {

/// The configuration that all peers of this program share. `data_dir`: for the known addresses.
node_config node_config_from(const run_options& options, const std::filesystem::path& data_dir);

/// How long a node may take to carry out `shut_down`: its trainer's checkpoint and two goodbyes.
milliseconds shutdown_limit(const node_config& config);

/// The averaging part of a node's configuration, from the options. `schema`: the agreement's hash;
/// peers with different schemas do not form a group. `computing`: threads that compute gradients
/// beside the averaging.
node_config::averaging_parts averaging_from(const run_options& options, const std::string& prefix,
                                            const std::string& kind, const digest& schema,
                                            std::uint64_t computing = 0);

/// The part of a node's configuration for reducing for clients.
node_config::helping_parts helping_from(const run_options& options);

} // namespace waggle
