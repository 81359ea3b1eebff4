#include "waggle/node.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_color_sinks.h>

#include "actors/service/running_node.hpp"
#include "runtime/core/try.hpp"
#include "runtime/crypto/digest.hpp"
#include "runtime/net/http_hosts.hpp"

namespace waggle {

namespace {

failure bad(std::string why) {
  return {ec::bad_config, std::move(why)};
}

status set_addresses(const node_options& from, node_config& to) {
  auto read_all = [](const auto& texts, const char* name, std::vector<endpoint>& into) -> status {
    for (const auto& text : texts) {
      auto where = parse_endpoint(text);
      if (!where)
        return bad(std::string{"node_options::"} + name + ": " + where.error().detail);
      into.push_back(*where);
    }
    return done{};
  };
  to.listen.clear();
  if (from.listen.empty())
    return bad("node_options::listen: there is no address");
  for (auto set : {read_all(from.listen, "listen", to.listen),
                   read_all(from.announce, "announce", to.announce),
                   read_all(from.initial_peers, "initial_peers", to.initial_peers)})
    if (!set)
      return set;
  auto own = to.initial_peers;
  own.insert(own.end(), to.listen.begin(), to.listen.end());
  own.insert(own.end(), to.announce.begin(), to.announce.end());
  to.switchboard.announced_addresses = net::dial_policy{own};
  return done{};
}

status set_averagers(const node_options& from, node_config& to) {
  for (const auto& given : from.averagers) {
    auto parts = averaging_parts_of(given, to.agreement.get(), to.client_mode);
    if (!parts)
      return bad("node_options::averagers: " + parts.error().detail);
    auto same = [&given](const auto& other) { return other.name == given.name; };
    if (std::count_if(from.averagers.begin(), from.averagers.end(), same) > 1)
      return bad("node_options::averagers: two have the name '" + given.name + "'");
    to.further_averaging.push_back(std::move(*parts)); // each can end
  }
  return done{};
}

std::shared_ptr<spdlog::logger> own_log(const std::string& level) {
  auto out = std::make_shared<spdlog::sinks::stderr_color_sink_mt>();
  out->set_pattern("%H:%M:%S.%e %^%-7l%$ %v"); // as of the programs
  constexpr spdlog::level::level_enum levels[]{spdlog::level::debug, spdlog::level::info,
                                               spdlog::level::warn, spdlog::level::err};
  return logger_to(
    [=](log_level at, std::string_view text) {
      out->log({"waggle", levels[static_cast<std::size_t>(at)], {text.data(), text.size()}});
    },
    level);
}

} // namespace

status check_timeout(milliseconds timeout, const std::string& name) {
  if (timeout > 0ms && timeout <= timeout_max)
    return done{};
  return bad(name + ": it must be more than 0, and at most a year");
}

result<node_config::averaging_parts> averaging_parts_of(const averager_options& given,
                                                        const run_agreement* agreement,
                                                        bool client_mode,
                                                        const std::string& tensors) {
  if (given.name.empty() || given.name.find('.') != std::string::npos)
    return bad("averager_options::name: '" + given.name
               + "' must neither be empty nor contain a point");
  auto wrong = [](const char* option, const std::string& why) {
    return bad(std::string{"averager_options::"} + option + ": " + why);
  };
  auto codec = parse_codec_choice(given.codec);
  if (!codec)
    return wrong("codec", codec.error().detail);
  if (given.part_size_bytes != 0
      && (given.part_size_bytes < 4_KiB || given.part_size_bytes > 16_MiB))
    return wrong("part_size_bytes",
                 std::to_string(given.part_size_bytes) + " is neither 0 nor 4096 to 16777216");
  if (!std::isfinite(given.alpha))
    return wrong("alpha", "it must be finite");
  for (auto [name, time] : {std::pair{"request_timeout", given.request_timeout},
                            std::pair{"sender_timeout", given.sender_timeout},
                            std::pair{"reducer_timeout", given.reducer_timeout}})
    if (time < 0ms || time > timeout_max)
      return wrong(name, "it must be 0 or more, and at most a year");
  if (!std::isfinite(given.state_sharing_priority))
    return wrong("state_sharing_priority", "it must be finite");
  if (given.declare_state_period < 5s || given.declare_state_period > 1h)
    return wrong("declare_state_period", "it must be 5 s to an hour");
  node_config::averaging_parts parts;
  auto& m = parts.matchmaking;
  m.prefix = given.name;
  if (agreement != nullptr)
    m.schema = agreement->hash();
  if (!tensors.empty())
    m.schema = sha256(to_string(m.schema) + tensors);
  m.target_group_size = given.target_group_size;
  m.min_group_size = given.min_group_size;
  m.min_matchmaking_time = given.matchmaking_time;
  // One peer that does not answer must not cost a whole search.
  m.request_timeout = given.request_timeout > 0ms ? given.request_timeout
                                                  : std::min(2'000ms, given.matchmaking_time / 2);
  m.elastic_bits = given.group_bits == "auto";
  if (!m.elastic_bits)
    m.initial_group_bits = given.group_bits;
  if (given.part_size_bytes != 0)
    m.parts = {static_cast<std::uint32_t>(
                 std::min<std::uint64_t>(given.part_size_bytes / sizeof(float), part_elements_max)),
               false};
  m.bandwidth = given.bandwidth;
  m.min_vector_size = given.min_vector_size;
  if (given.auxiliary && client_mode)
    return wrong("auxiliary", "a peer in client mode cannot reduce for others");
  m.mode = given.auxiliary ? member_mode::auxiliary
           : client_mode   ? member_mode::client
                           : member_mode::node;
  auto& a = parts.averaging;
  a.codec = *codec;
  a.auxiliary = given.auxiliary;
  a.measures_bandwidth = !given.bandwidth;
  a.retries_max = given.retries;
  a.round.deadline = given.allreduce_timeout;
  if (given.sender_timeout > 0ms)
    a.round.stall_timeout = given.sender_timeout;
  a.round.result_timeout = given.reducer_timeout;
  if (auto valid = check_averaging_parts(parts, client_mode); !valid)
    return bad("averager_options of " + given.name + ": " + valid.error().detail);
  return parts;
}

/// Nothing: the run has only a name.
static result<std::optional<swarm_key>> key_of(const node_options& o) {
  if (o.swarm_key.empty())
    return std::optional<swarm_key>{};
  auto text = o.swarm_key.string();
  auto key = is_inline_key(text) ? parse_inline_key(text) : load_swarm_key(o.swarm_key);
  if (!key)
    return bad("node_options::swarm_key: " + key.error().detail);
  return std::optional{*key};
}

/// Null: the run has no list of members.
static result<std::shared_ptr<run_members>> members_of(const node_options& o) {
  if (o.members.empty() && o.members_list.empty())
    return std::shared_ptr<run_members>{};
  if (o.members.empty())
    return bad("node_options::members_list: needs `members`, the public key of whoever signs it");
  auto authority = parse_authority(o.members);
  if (!authority)
    return bad("node_options::members: '" + o.members + "' " + authority.error().detail);
  auto all = members_of(*authority, o.members_list);
  return all ? all : bad("node_options::members_list: " + to_string(all.error()));
}

result<node_config> node_config_of(const node_options& o) {
  constexpr std::array levels{"debug", "info", "warn", "error"};
  if (std::find(levels.begin(), levels.end(), o.log_level) == levels.end())
    return bad("node_options::log_level: '" + o.log_level
               + "' is none of debug, info, warn, error");
  if (o.run.empty() || o.run.size() > 128)
    return bad("node_options::run: the name of a run has 1 to 128 bytes");
  WAGGLE_TRY(key, key_of(o));
  node_config config{.run_id = *key ? run_id_of(**key) : o.run, .label = o.run};
  WAGGLE_TRY(members, members_of(o));
  config.members = *members;
  WAGGLE_TRY(addresses, set_addresses(o, config));
  if (!o.agreed.empty()) {
    run_agreement all;
    WAGGLE_TRY(added, all.add({"protocol", std::to_string(protocol_version), {}}));
    for (const auto& [name, value] : o.agreed)
      if (auto added = all.add({name, value, {}}); !added)
        return bad("node_options::agreed: " + name + ": " + added.error().detail);
    config.agreement = std::make_shared<const run_agreement>(std::move(all));
  }
  config.client_mode = o.client_mode;
  if (o.client_mode) // HTTP for this machine only
    config.listen = {{"127.0.0.1", config.listen.front().port}};
  WAGGLE_TRY(valid, check_timeout(o.shutdown_timeout, "node_options::shutdown_timeout"));
  WAGGLE_TRY(averagers, set_averagers(o, config));
  if (!o.data_dir.empty())
    config.addresses.file = o.data_dir / "known_peers";
  config.takes_averagers = true;  // averager::add
  config.dht.open_records = true; // waggle::dht stores those
  if (o.accepts)
    config.dht.accepts = [accepts = o.accepts](const record& entry) {
      return accepts(entry.name, entry.subkey, entry.value);
    };
  // As `waggle train` does: a frozen peer delays the rounds of all until it is given up.
  config.switchboard.link.ping_interval = 400ms;
  config.seed = entropy_seed();
  return config;
}

result<node> node::start(const node_options& given) {
  auto options = given;
  std::error_code error;
  if (!options.data_dir.empty()) // the service may go to another folder later
    options.data_dir = std::filesystem::absolute(options.data_dir, error);
  if (error)
    return bad("node_options::data_dir: there is no current folder: " + error.message());
  WAGGLE_TRY(config, node_config_of(options));
  auto made = std::make_shared<running_node>();
  std::shared_ptr<const identity> self;
  if (options.data_dir.empty()) {
    self = identity::generate();
  } else {
    WAGGLE_TRY(lock, folder_lock::take(options.data_dir, "node_options::data_dir"));
    if (!*lock)
      return bad("node_options::data_dir: another peer uses " + options.data_dir.string()
                 + ": give this one its own");
    made->lock = std::move(*lock);
    auto key = identity::load_or_create(options.data_dir / "identity.pem");
    if (!key)
      return bad("node_options::data_dir: " + key.error().detail);
    self = *key;
  }
  made->system = options.around.system;
  if (made->system == nullptr) {
    caller_thread here;
    made->own_system = std::make_unique<caf::actor_system>(made->config);
    made->system = made->own_system.get();
  }
  auto log = logger_to(options.around.log, options.log_level);
  net::tcp_transport_config tcp;
  if (!options.data_dir.empty()) {
    auto pages = page_certificate::load_or_create(options.data_dir / page_certificate_file);
    if (!pages)
      return bad("node_options::data_dir: " + pages.error().detail);
    tcp.pages = *pages;
  }
  WAGGLE_TRY(swarm, key_of(options));
  tcp.key = *swarm;
  tcp.members = config->members;
  tcp.encrypts = options.encrypt;
  for (const auto& where : config->listen)
    tcp.http_hosts.insert(net::host_name(where.host));
  WAGGLE_TRY(started, start_node(*made->system, *config,
                                 machine_dependencies(
                                   options.around, self, log ? log : own_log(options.log_level),
                                   options.run, options.data_dir, std::move(tcp))));
  made->averagers = averagers_of(options, started->parts);
  made->agreement = config->agreement;
  made->node = std::move(*started);
  made->shutdown_timeout = options.shutdown_timeout;
  return node{std::move(made)};
}

node::~node() {
  if (running_)
    (void)leave(running_->shutdown_timeout);
}

node& node::operator=(node&& other) noexcept {
  if (this != &other) {
    if (running_)
      (void)leave(running_->shutdown_timeout);
    running_ = std::move(other.running_);
  }
  return *this;
}

const peer_id& node::id() const {
  return running_->node.ctx.record.id;
}

std::string node::address() const {
  return to_string(running_->node.bound);
}

std::vector<std::string> node::addresses() const {
  std::vector<std::string> all;
  for (const auto& where : running_->node.ctx.own_record().addresses)
    all.push_back(to_string(where));
  return all;
}

status node::wait_until_ready(milliseconds timeout) const {
  return running_->node.board->wait_until_ready(timeout);
}

std::string node::status_json() const {
  return running_->node.board->answer({"GET", "/api/v1/status"}).body;
}

status node::leave(milliseconds timeout) {
  auto ended =
    running_->ask<training_status>(running_->node.node, timeout, shut_down{"its service leaves"});
  if (!ended && ended.error().code != ec::shutting_down)
    return ended.error();
  std::lock_guard guard{running_->lock_mutex};
  running_->lock.reset(); // another peer may use the folder now
  return done{};
}

} // namespace waggle
