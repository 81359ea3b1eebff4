// this machine ─► names ─► dials over a switchboard, which join nothing ─► dial back, clocks, path

#include <filesystem>
#include <fstream>
#include <future>

#include <spdlog/fmt/fmt.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "actors/caf_error.hpp"
#include "actors/links/switchboard.hpp"
#include "actors/program/commands.hpp"
#include "actors/service/machine.hpp"
#include "runtime/cli/examine_swarm.hpp"
#include "runtime/cli/finding_report.hpp"
#include "runtime/cli/logging.hpp"
#include "runtime/cli/peer_address.hpp"
#include "runtime/config/agreed_options.hpp"
#include "runtime/core/private_file.hpp"
#include "runtime/core/version.hpp"
#include "runtime/net/http_client.hpp"
#include "runtime/net/local_addresses.hpp"
#include "runtime/watch/json_fields.hpp"

namespace waggle {

namespace {

namespace fs = std::filesystem;
using clock = std::chrono::steady_clock;

constexpr auto name_timeout = 2s;
constexpr auto dial_timeout = 4s;
constexpr auto page_timeout = 2s;
constexpr std::size_t addresses_tried_max = 16; // of all initial peers

// -- this machine

/// Whether a process holds the lock of this file, without touching it.
bool is_locked(const fs::path& file) {
  struct stat found {};
  if (::stat(file.c_str(), &found) != 0)
    return false;
  // "1: FLOCK  ADVISORY  WRITE 1234 fe:00:12345 0 EOF"
  auto wanted =
    fmt::format(" {:02x}:{:02x}:{} ", major(found.st_dev), minor(found.st_dev), found.st_ino);
  std::ifstream locks{"/proc/locks"};
  for (std::string line; std::getline(locks, line);)
    if (line.find("FLOCK") != std::string::npos && line.find(wanted) != std::string::npos)
      return true;
  return false;
}

folder_facts look_at_folder(const run_options& options) {
  folder_facts facts;
  facts.folder = options.given.contains("data-dir")
                   ? options.data_dir
                   : default_folder(options.data_dir, options.run(), 1);
  std::error_code error;
  facts.exists = fs::is_directory(facts.folder, error);
  if (!facts.exists && fs::exists(facts.folder, error))
    facts.trouble = "is no folder";
  auto base = fs::absolute(facts.folder, error);
  while (!fs::exists(base, error) && base.has_parent_path() && base != base.parent_path())
    base = base.parent_path();
  if (facts.trouble.empty() && ::access(base.c_str(), W_OK | X_OK) != 0)
    facts.trouble = "this user may not write in " + base.string();
  facts.free_bytes = fs::space(base, error).available;
  if (facts.exists) {
    if (auto running = address_of_running_peer(facts.folder))
      facts.running = *running;
    facts.locked = is_locked(facts.folder / "lock");
    facts.open_to_others = writable_by_others(facts.folder);
  }
  auto key = options.identity.value_or(facts.folder / "identity.pem");
  struct stat found {};
  bool there = ::stat(key.c_str(), &found) == 0;
  if (there && (found.st_mode & 077U) != 0)
    facts.key_open = key.string();
  else if (auto loaded = identity::load(key); there && !loaded)
    facts.key_bad = loaded.error().detail;
  else if (there && !facts.running)
    facts.own = (*loaded)->id();
  return facts;
}

/// What this process may still take: of the machine, or of its container.
std::uint64_t available_memory() {
  std::uint64_t available = ~std::uint64_t{0};
  std::ifstream file{"/proc/meminfo"};
  std::string name, unit;
  for (std::uint64_t value = 0; file >> name >> value;) {
    if (name == "MemAvailable:")
      available = value * 1024;
    std::getline(file, unit);
  }
  std::uint64_t most = 0, used = 0;
  if (std::ifstream{"/sys/fs/cgroup/memory.max"} >> most
      && std::ifstream{"/sys/fs/cgroup/memory.current"} >> used)
    available = std::min(available, most > used ? most - used : 0);
  return available;
}

// -- the network

struct reached_peer {
  endpoint where;
  peer_id id;
};

/// A switchboard and a port, with an identity for the moment, and without anything that would join
/// a run: no DHT, no reports, no data folder.
class probe {
public:
  explicit probe(const run_options& options, std::shared_ptr<const run_agreement> agreement,
                 std::shared_ptr<run_members> members = nullptr,
                 std::shared_ptr<const identity> self = identity::generate())
    : options_(options), limits_(net::clock_limits_for(options.report_expiration)) {
    net::tcp_transport_config tcp;
    tcp.shared_memory = false;
    tcp.looks = true;
    tcp.key = options.key;
    tcp.encrypts = options.encrypts;
    tcp.members = std::move(members);
    auto all = machine_dependencies({}, std::move(self), make_logger("error", "text", "doctor", ""),
                                    options.run(), {}, std::move(tcp));
    ctx_.run_id = options.run();
    ctx_.self = all.self;
    ctx_.record = {ctx_.self->id(), ctx_.self->key(), {}, true};
    ctx_.wall = all.wall;
    ctx_.verifier = all.verifier;
    ctx_.metrics =
      std::make_shared<metric_families>(all.registry, "doctor", short_name(ctx_.self->id()));
    ctx_.log = all.log;
    ctx_.links = std::make_shared<link_table>();
    ctx_.rounds = make_round_registry(ctx_.links, ctx_.strangers);
    net::net_events events;
    events.clock_compared = [this](const peer_id& peer, swarm_clock::duration offset) {
      std::lock_guard guard{mutex_};
      offsets_[peer] = offset;
    };
    transport_ =
      all.make_transport({ctx_.record, std::move(agreement), {}, events, ctx_.wall, limits_});
    board_ = system_.spawn<switchboard>(ctx_, switchboard_config{}, transport_);
  }
  ~probe() {
    caf::anon_send(board_, hang_up{});
    caf::anon_send_exit(board_, caf::exit_reason::user_shutdown);
    system_.await_all_actors_done();
    transport_->stop();
  }
  probe(const probe&) = delete;
  probe& operator=(const probe&) = delete;

  /// Listens at one address, for the peers that dial back.
  failure listen(const endpoint& where) {
    auto bound = transport_->listen({where}, [board = board_](std::shared_ptr<net::link> link) {
      caf::anon_send(board, link_arrived{std::move(link)});
    });
    if (!bound)
      return bound.error();
    bound_ = bound->front();
    return {};
  }
  [[nodiscard]] const std::optional<endpoint>& bound() const { return bound_; }

  result<std::vector<endpoint>> resolve(const endpoint& given) {
    auto answer = std::make_shared<std::promise<result<std::vector<endpoint>>>>();
    auto found = answer->get_future();
    transport_->resolve(given, name_timeout, [answer](result<std::vector<endpoint>> all) {
      answer->set_value(std::move(all));
    });
    return found.get();
  }

  /// Dials all at once. The peers that answered; each outcome goes to `out`.
  std::vector<reached_peer> dial(const std::vector<std::pair<endpoint, endpoint>>& all,
                                 finding_report& out) {
    std::vector<reached_peer> reached;
    caf::scoped_actor self{system_};
    using waiting = decltype(self->request(board_, dial_timeout, connect_address{}));
    std::vector<waiting> dials;
    for (const auto& [given, where] : all)
      dials.push_back(
        self->request(board_, dial_timeout + 1s, connect_address{where, dial_timeout, given}));
    for (std::size_t i = 0; i < all.size(); ++i) {
      const auto& [given, where] = all[i];
      dials[i].receive(
        [&](const peer_connected& up) {
          out.add(judge_dial(given, where, {}, up.peer.id));
          reached.push_back({where, up.peer.id});
        },
        [&](const caf::error& why) {
          auto reason = from_caf(why);
          auto prefix = to_string(where) + ": ";
          if (reason.detail.starts_with(prefix))
            reason.detail.erase(0, prefix.size());
          out.add(judge_dial(given, where, reason, std::nullopt));
        });
    }
    return reached;
  }

  /// Asks a peer to dial this machine at these ports.
  ec dialled_back(const reached_peer& by, const std::vector<std::uint16_t>& ports) {
    caf::scoped_actor self{system_};
    peer_record to{.id = by.id};
    auto outcome = ec::timeout;
    self->request(board_, dial_timeout + 1s, call_peer{to, wire::dial_back{ports}, dial_timeout})
      .receive(
        [&](const peer_answer& answer) {
          const auto* found = std::get_if<wire::dialled_back>(&answer.what);
          outcome = found != nullptr ? found->outcome : ec::overloaded;
        },
        [&](const caf::error& why) { outcome = from_caf(why).code; });
    return outcome;
  }

  [[nodiscard]] std::optional<finding> clock_of(const reached_peer& peer) {
    std::lock_guard guard{mutex_};
    auto found = offsets_.find(peer.id);
    if (found == offsets_.end())
      return std::nullopt;
    return judge_clock(peer.where, found->second, limits_);
  }

private:
  const run_options& options_;
  net::clock_limits limits_;
  caf::actor_system_config config_;
  caf::actor_system system_{config_};
  node_context ctx_;
  std::shared_ptr<net::transport> transport_;
  wired_switchboard_actor board_;
  std::optional<endpoint> bound_;
  std::mutex mutex_;
  std::map<peer_id, swarm_clock::duration> offsets_;
};

bool answers(const endpoint& where, const std::string& page) {
  return net::http_get(where, page, page_timeout).ok();
}

finding look_at_path(const endpoint& where) {
  bool small = answers(where, "/healthz");
  // More than two packets of the largest usual size, and less than what a request may have.
  bool sent = small && answers(where, "/healthz?" + std::string(4'000, 'x'));
  bool received = small && answers(where, "/metrics");
  return judge_path(where, small, sent, received);
}

/// What `waggle train` would find of these options, once it is known that the model has room.
std::vector<finding> look_at_training(const run_options& options, const training_check& check,
                                      const fs::path& folder) {
  auto facts = check ? check.facts(options, model_look::guess) : model_facts{};
  auto bytes = facts ? sizeof(float) * (facts->trained + facts->frozen) : 0;
  std::vector<finding> out{judge_memory(available_memory(), bytes)};
  if (out.front().how == finding::level::bad || !check)
    return out;
  if (auto usable = check.usable(options); !usable)
    out.push_back({finding::level::bad, "training", usable.error().detail, "correct the option"});
  else
    out.push_back({finding::level::good, "training", "data, model and device can be used", {}});
  if (auto why = check.unused_checkpoint(options, folder); !why.empty())
    out.push_back({finding::level::warning, "checkpoint", "no checkpoint can be used: " + why,
                   "otherwise this peer begins anew, unless the run has a state for it; give it "
                   "another --data-dir"});
  return out;
}

int examine_this_machine(const run_options& options, const training_check& check) {
  finding_report out{options.json};
  auto facts = look_at_folder(options);
  out.add(judge_folder(facts));
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0)
    out.add(judge_descriptors(files.rlim_cur, files.rlim_max));
  if (sets_agreed(options))
    out.add(look_at_training(options, check, facts.folder));
  else
    out.add(judge_memory(available_memory()));

  std::shared_ptr<const run_agreement> agreement;
  if (sets_agreed(options)) {
    auto made = training_agreement(options, protocol_version);
    if (!made && !check)
      out.add(finding{finding::level::bad, "options", made.error().detail, "correct the option"});
    if (made)
      agreement = std::make_shared<const run_agreement>(std::move(*made));
  }
  auto members = membership_of(options);
  if (!members)
    out.add(finding{finding::level::bad, "members", members.error().detail, "correct the option"});
  auto self = identity::generate();
  bool asks = members.ok();
  if (members && *members) {
    // The others judge the identity of the data folder.
    auto own = identity::load(options.identity.value_or(facts.folder / "identity.pem"));
    if (own && !facts.running)
      self = *own;
    asks = own.ok();
    if (!asks)
      out.add(
        finding{finding::level::bad, "members",
                "this peer has no identity yet, so it is on no list of members",
                "`waggle id --data-dir " + facts.folder.string()
                  + "` makes one: send its id to whoever keeps the list, and run this again"});
  }
  probe network{options, agreement, members ? *members : nullptr, self};
  for (const auto& where : options.client_mode ? std::vector<endpoint>{} : options.listen) {
    // One port stays open for the dial back; whether the others are free is seen in passing.
    failure why;
    if (!network.bound()) {
      why = network.listen(where);
    } else {
      probe another{options, nullptr};
      why = another.listen(where);
    }
    out.add(judge_port(where, why, facts.running));
  }

  if (auto announced = net::numeric_addresses(options.announce, net::system_lookup()); !announced)
    out.add(
      finding{finding::level::bad, "address", announced.error().detail, "correct --announce"});

  std::vector<std::pair<endpoint, endpoint>> places; // what was given, and an address
  for (const auto& given : options.initial_peers) {
    auto found = network.resolve(given);
    if (!net::is_numeric(given.host) || !found)
      out.add(judge_name(given, found ? failure{} : found.error()));
    if (found)
      for (const auto& where : *found)
        if (places.size() < addresses_tried_max)
          places.emplace_back(given, where);
  }
  std::vector<endpoint> addresses;
  for (const auto& [given, where] : places)
    addresses.push_back(where);
  out.add(judge_loopback(options.listen, options.announce, addresses));
  if (!asks)
    places.clear(); // they would refuse an identity that nobody has
  auto reached = network.dial(places, out);
  std::vector<std::pair<endpoint, std::string>> versions;
  std::optional<finding> doubled;
  for (const auto& peer : reached) {
    out.add(network.clock_of(peer));
    if (auto status = net::http_get(peer.where, "/api/v1/status", page_timeout, options.key);
        status && status->status == 200)
      if (auto document = parse_document(status->body); document && document->is_object())
        versions.emplace_back(peer.where, text_in(*document, "version"));
    if (auto peers = net::http_get(peer.where, "/api/v1/peers", page_timeout, options.key);
        peers && peers->status == 200 && facts.own && !doubled) {
      doubled = judge_identity(*facts.own, peers->body);
      out.add(doubled);
    }
  }
  out.add(judge_versions(version, versions));
  if (!reached.empty())
    out.add(look_at_path(reached.front().where));
  if (!options.client_mode && network.bound() && !reached.empty()) {
    std::vector<std::uint16_t> ports;
    for (const auto& where : options.announce)
      ports.push_back(where.port != 0 ? where.port : network.bound()->port);
    if (ports.empty())
      ports.push_back(network.bound()->port);
    auto other = std::find_if(reached.begin(), reached.end(), [](const reached_peer& peer) {
      return net::kind_of(peer.where.host) != net::host_kind::loopback;
    });
    const auto& by = other != reached.end() ? *other : reached.front();
    out.add(judge_dial_back(by.where, ports, network.dialled_back(by, ports)));
    out.add(judge_port_mapping(options.maps_ports, net::make_port_router() != nullptr));
  }
  return out.end();
}

int run_doctor(const run_options& options, const training_check& check) {
  if (!options.arguments.front().empty()) {
    auto where = asked_peer(options);
    return where ? examine_swarm(options, *where) : bad_usage(where.error().detail);
  }
  if (!asked_fingerprint(options).empty())
    return bad_usage("--fingerprint is that of a running peer: name it, waggle doctor HOST:PORT");
  return examine_this_machine(options, check);
}

} // namespace

command doctor_command(const training_check& check) {
  return {
    "doctor",
    "Checks, before a start, what would go wrong; or examines a running swarm.",
    "  waggle doctor --run-id demo --initial-peers seed:7700     with the options of the peer\n"
    "  waggle doctor 10.0.0.1:7700                               the swarm of a running peer\n"
    "  waggle doctor https://10.0.0.1:7700                       asked over TLS\n"
    "Before a start it checks folder, key, disk, memory, port and names, what waggle train would\n"
    "find of the options given (data, model, device), shakes hands with every\n"
    "initial peer (run, options, version, clock), and asks one to dial this machine back. It\n"
    "joins nothing and changes nothing. Each line says what was seen and what to change.\n"
    "Exit code 0; 1 if anything is bad; 2 for wrong usage.\n",
    {"run", "peer", "helping", "training", "averaging", "output"},
    {{"HOST:PORT", "A running peer, whose swarm is examined.", false}},
    [check](const run_options& options) { return run_doctor(options, check); },
    true,
    {},
    {"fingerprint"}};
}

} // namespace waggle
