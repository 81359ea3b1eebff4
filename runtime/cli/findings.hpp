#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "runtime/core/endpoint.hpp"
#include "runtime/core/error.hpp"
#include "runtime/core/time.hpp"
#include "runtime/net/clock_offset.hpp"
#include "runtime/status/symptoms.hpp"

namespace waggle {

/// What `waggle doctor` found in one check. All functions here are pure: they judge what was seen.
struct finding {
  using level = severity;
  level how = level::good;
  std::string check; // "port"
  std::string seen;  // half a sentence
  std::string cure;  // what to change; empty if nothing
};

/// One line for people, without a line end.
std::string to_line(const finding& f);
/// An array of objects: check, level, seen, cure.
std::string to_json(const std::vector<finding>& all);
bool any_bad(const std::vector<finding>& all);

// -- this machine

struct folder_facts {
  std::filesystem::path folder;
  bool exists = false;               // false: `trouble` concerns where it would be made
  std::string trouble;               // why files cannot be written there; empty: they can
  std::optional<endpoint> running{}; // the address of the peer that uses it now
  bool locked = false;               // by a process that writes no address, or of another container
  std::optional<std::string> key_open{};       // the key file, if other users may read it
  std::optional<std::string> key_bad{};        // why it cannot be used otherwise
  std::optional<std::string> open_to_others{}; // who else may write to the folder
  std::uint64_t free_bytes = 0;
  std::optional<peer_id> own = {}; // of the key, unless its peer runs here
};
std::vector<finding> judge_folder(const folder_facts& facts);

finding judge_descriptors(std::uint64_t soft, std::uint64_t hard);
/// @param parameter_bytes of the model; 0: not known.
finding judge_memory(std::uint64_t available_bytes, std::uint64_t parameter_bytes = 0);

/// @param failure of listening at `where`; ec::none: it worked.
/// @param own the address of the running peer of the data folder.
finding judge_port(const endpoint& where, const failure& why, const std::optional<endpoint>& own);
/// Peers on other machines cannot dial a peer that listens on loopback only. `initial_peers`: their
/// addresses, not names.
std::optional<finding> judge_loopback(const std::vector<endpoint>& listen,
                                      const std::vector<endpoint>& announce,
                                      const std::vector<endpoint>& initial_peers);

// -- initial peers

/// The outcome of a dial that ends before it joins. `given`: what the operator wrote.
finding judge_dial(const endpoint& given, const endpoint& where, const failure& why,
                   const std::optional<peer_id>& met);
/// Of a name that does not resolve, or does so slowly.
finding judge_name(const endpoint& given, const failure& why);
/// A peer of the run that uses the identity of this folder at another place; nothing: none does.
/// @param peers the document /api/v1/peers of one that answered.
std::optional<finding> judge_identity(const peer_id& own, const std::string& peers);
finding judge_clock(const endpoint& where, swarm_clock::duration offset, net::clock_limits limits);
/// What a peer found that dialled us back. `announced`: the ports that it tried.
finding judge_dial_back(const endpoint& through, const std::vector<std::uint16_t>& announced,
                        ec outcome);
/// Whether a peer asks its router for its port: `wanted` by its options, `possible` in this build.
finding judge_port_mapping(bool wanted, bool possible);
/// Small and large requests to the same port. A path that drops large packets answers only the
/// small ones.
finding judge_path(const endpoint& where, bool small_passed, bool large_sent, bool large_received);
/// The versions of the peers that were asked, by address.
std::optional<finding> judge_versions(const std::string& own,
                                      const std::vector<std::pair<endpoint, std::string>>& theirs);

} // namespace waggle
