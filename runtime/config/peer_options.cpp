#include <cctype>

#include "runtime/config/option_bindings.hpp"
#include "runtime/core/bytes.hpp"
#include "runtime/core/try.hpp"

namespace waggle::option_bindings {

namespace {

using o = run_options;

result<std::string> run_name(std::string_view v) {
  auto plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_';
  };
  if (v.empty() || v.size() > 64 || !std::all_of(v.begin(), v.end(), plain))
    return failure{ec::bad_config, "must have 1 to 64 letters, digits, - or _: "
                                   "it becomes part of the DHT's keys"};
  return std::string{v};
}

result<std::vector<endpoint>> own_addresses(std::string_view v) {
  WAGGLE_TRY(all, parse_endpoints(v));
  if (all->empty() || all->size() > addresses_max)
    return failure{ec::bad_config, "must be 1 to " + std::to_string(addresses_max)
                                     + " addresses HOST:PORT, separated by commas"};
  return all;
}

result<std::string> authority_key(std::string_view v) {
  auto key = parse_authority(v);
  return key ? result<std::string>{to_string(*key)} : key.error();
}

result<std::uint64_t> log_size(std::string_view v) {
  auto value = parse_bytes(v);
  if (value && *value != 0 && (*value < 64_KiB || *value > 1_GiB))
    return failure{ec::bad_config, "must be 0 (none) or lie between 64KiB, which some rounds fill, "
                                   "and 1GiB; the default is 32MiB"};
  return value;
}

} // namespace

void add_peer_options(std::vector<option_spec>& table) {
  add_group(
    table, "run",
    {{"run-id", "NAME",
      "Peers of one run use the same name, or the same --swarm-key; others are refused.",
      bound(&o::run_id, run_name).member_in_loops("run")},
     {"swarm-key", "FILE",
      "The run's key, of which all its peers have copies; with it, --run-id is only a label. "
      "`waggle id --swarm-key FILE` makes one.",
      path_text(&o::swarm_key, is_inline_key).member_in_loops("swarm_key")},
     {"members", "KEY",
      "Only peers on the list that the owner of this public key signs belong to the run (`waggle "
      "members`).",
      bound(&o::members, authority_key).member_in_loops("members")},
     {"members-list", "FILE",
      "The list of members. A peer keeps the newest one that it has seen in --data-dir, and needs "
      "none if its initial peers have it.",
      path_text(&o::members_list, is_inline_list).member_in_loops("members_list")},
     {"data-dir", "DIR", "Where the identity and the checkpoints are kept.",
      path(&o::data_dir, "a folder").member_in_loops("data_dir")},
     {"log-level", "LEVEL", "debug, info, warn or error.",
      one_of(&o::log_level, {"debug", "info", "warn", "error"}).member_in_loops("log_level")},
     {"log-format", "FORMAT", "text or json.",
      one_of(&o::log_format, {"text", "json"}).not_in_python("the log of a loop is text")},
     {"event-log", "BYTES",
      "What happened to this peer, in --data-dir: files of together at most this size, half of it "
      "for rounds; 0: none.",
      bound(&o::event_log, log_size)},
     {"duration", "TIME", "Stop after this long; 0: run until stopped.",
      duration(&o::duration).not_in_loops("end the loop")},
     {"seed", "N",
      "Makes the random choices of this identity (--data-dir) repeatable: another one draws other "
      "samples; 0: from the operating system.",
      whole(&o::seed, 0, ~std::uint64_t{0}, "").not_in_python("call torch.manual_seed")}});
  add_group(
    table, "peer",
    {{"listen", "HOST:PORT,…",
      "Where peers, browsers and Prometheus reach this peer. [::] stands for all addresses, of "
      "IPv4 and IPv6; 0.0.0.0 for those of IPv4. Port 0 picks a free one.",
      bound(&o::listen, own_addresses).member_in_loops("listen")},
     {"announce", "HOST:PORT,…",
      "The addresses that other peers dial, if they differ from --listen (port 0: the bound port).",
      bound(&o::announce, own_addresses)
        .member_in_loops("announce")
        .only_if(
          [](const o& x) { return !x.client_mode; },
          "and --client-mode exclude each other: other peers do not dial a client; leave out "
          "--announce, or --client-mode if they can reach that address")},
     {"initial-peers", "A,B",
      "Peers of the run to join through; one that answers is enough. None: start the run.",
      bound(&o::initial_peers, parse_endpoints).member_in_loops("initial_peers")},
     {"client-mode", "",
      "Accept no connections, only dial: for peers behind NAT. Status and metrics stay on "
      "127.0.0.1, at the port of --listen if that is given.",
      yes_no(&o::client_mode)
        .only_if(
          [](const o& x) { return !x.initial_peers.empty(); },
          "needs --initial-peers: other peers cannot reach this one, so it has to know which "
          "ones to dial")},
     {"encrypt", "WHEN",
      "auto: links are encrypted unless both ends are on loopback. never: none is; all peers of "
      "the run need it.",
      choice(&o::encrypts, {{"auto", true}, {"never", false}})},
     {"port-mapping", "WHEN",
      "auto: if others do not reach this peer, it asks its router to pass on its port (UPnP, "
      "NAT-PMP). off: it never does.",
      choice(&o::maps_ports, {{"auto", true}, {"off", false}})},
     {"pages", "WHO",
      "Who sees the live page at / of this peer's port: all, local (this machine) or none. With "
      "--swarm-key and without this option, other machines see health and metrics; to see more, "
      "they have to know the key.",
      one_of(&o::pages, {"all", "local", "none"})},
     {"identity", "FILE",
      "File with the peer's key; by default identity.pem in --data-dir, created if missing.",
      path(&o::identity, "a file").not_in_python("copy the file into data_dir as identity.pem")}});
}

} // namespace waggle::option_bindings

namespace waggle {

status load_key(run_options& options) {
  if (options.swarm_key.empty())
    return done{};
  auto key = is_inline_key(options.swarm_key) ? parse_inline_key(options.swarm_key)
                                              : load_swarm_key(options.swarm_key);
  if (!key)
    return failure{ec::bad_config, "--swarm-key: " + key.error().detail};
  options.key = *key;
  return done{};
}

result<std::shared_ptr<run_members>> membership_of(const run_options& options) {
  auto authority = public_key::parse(options.members);
  if (!authority && !options.members_list.empty())
    return failure{ec::bad_config, "--members-list needs --members KEY: the public key of whoever "
                                   "signs the list, which `waggle members show` prints"};
  if (!authority)
    return std::shared_ptr<run_members>{};
  auto out = members_of(*authority, options.members_list);
  return out ? out : failure{ec::bad_config, "--members-list: " + to_string(out.error())};
}

} // namespace waggle
