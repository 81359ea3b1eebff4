#include "tests/support/simulation.hpp"

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include <spdlog/logger.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/null_sink.h>
#include <spdlog/sinks/stdout_sinks.h>

#include "runtime/core/check.hpp"

namespace waggle::testing {

/// Wall time that advances with the network's virtual time.
class simulation::clock final : public wall_clock {
public:
  clock(const net::sim_network& network, steady_time start, swarm_clock::duration offset)
    : network_(network), start_(start), offset_(offset) {}
  [[nodiscard]] swarm_time now() const override {
    return swarm_time{std::chrono::hours{24 * 365 * 50}} + (network_.now() - start_) + offset_;
  }
  void set(swarm_clock::duration by) { offset_ += by; }

private:
  const net::sim_network& network_;
  steady_time start_;
  swarm_clock::duration offset_;
};

struct simulation::system_config : caf::actor_system_config {
  system_config() { set("scheduler.policy", caf::atom("testing")); }
};

namespace {

caf::scheduler::test_coordinator& coordinator_of(caf::actor_system& system) {
  return dynamic_cast<caf::scheduler::test_coordinator&>(system.scheduler());
}

net::sim_network::options seeded(net::sim_network::options options, std::uint64_t seed) {
  options.seed = seed;
  return options;
}

/// Logs to standard output with the virtual time on every line, if WAGGLE_TEST_LOG is set.
std::shared_ptr<spdlog::logger> make_log() {
  if (const char* level = std::getenv("WAGGLE_TEST_LOG")) {
    auto log =
      std::make_shared<spdlog::logger>("sim", std::make_shared<spdlog::sinks::stdout_sink_st>());
    log->set_level(spdlog::level::from_str(level));
    log->set_pattern("%v");
    return log;
  }
  auto log =
    std::make_shared<spdlog::logger>("sim", std::make_shared<spdlog::sinks::null_sink_st>());
  log->set_level(spdlog::level::off);
  return log;
}

class line_sink final : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
public:
  explicit line_sink(std::shared_ptr<std::vector<std::string>> lines) : lines_(std::move(lines)) {}

private:
  void sink_it_(const spdlog::details::log_msg& what) override {
    auto level = spdlog::level::to_string_view(what.level);
    lines_->push_back(std::string{level.data(), level.size()} + " "
                      + std::string{what.payload.data(), what.payload.size()});
  }
  void flush_() override {}

  std::shared_ptr<std::vector<std::string>> lines_;
};

} // namespace

simulation::simulation(std::uint64_t seed, net::sim_network::options options)
  : config_(std::make_unique<system_config>()),
    system_(std::make_unique<caf::actor_system>(*config_)), coordinator_(coordinator_of(*system_)),
    start_(coordinator_.clock().now()), network_(seeded(options, seed), start_),
    verifier_(make_caching_verifier(1U << 16U)), log_(make_log()), seed_(seed) {}

simulation::~simulation() {
  if (const char* file = std::getenv("WAGGLE_TRACES"))
    std::ofstream{file, std::ios::app} << seed_ << ' ' << network_.trace_hash() << '\n';
  frozen_.clear();
  for (index i = 0; i < peers_.size(); ++i)
    if (peers_[i]->alive)
      crash(i, true);
  settle();
  // Pending timeouts hold references to actors that have ended.
  while (coordinator_.has_pending_timeout()) {
    coordinator_.trigger_timeouts();
    settle();
  }
  peers_.clear();
  system_.reset();
}

simulation::index simulation::start(node_config config, const std::vector<index>& through,
                                    std::shared_ptr<disk> files, swarm_clock::duration clock_offset,
                                    std::optional<index> as) {
  auto who = peers_.size();
  auto entry = std::make_unique<peer>();
  auto* made = entry.get();
  peers_.push_back(std::move(entry));
  made->self = identity::from_seed(seed_ * 1000 + as.value_or(who) + 1);
  config.seed = seed_ * 1000 + who + 1;
  for (auto other : through)
    config.initial_peers.push_back(net::sim_network::address_of(other));
  if (config.averaging)
    config.averaging->averaging.observer = [made](const round_report& r) {
      made->rounds.push_back(r);
    };
  node_dependencies dependencies;
  dependencies.self = made->self;
  made->machine = std::make_shared<clock>(network_, start_, clock_offset);
  dependencies.wall = made->machine;
  dependencies.steady = [this] { return network_.now(); };
  dependencies.verifier = verifier_;
  dependencies.registry = std::make_shared<prometheus::Registry>();
  dependencies.log = log_->clone(short_name(made->self->id()));
  dependencies.log->set_pattern("%n %l %v");
  if (keeps_lines_)
    dependencies.log = std::make_shared<spdlog::logger>(short_name(made->self->id()),
                                                        std::make_shared<line_sink>(made->lines));
  dependencies.detach_workers = false;
  dependencies.files = std::move(files);
  dependencies.port_decorator = port_decorator_;
  dependencies.make_transport = [this, &config](transport_request order) {
    auto node = network_.add_node(config.run_id, order.record, order.agreement);
    network_.set_members(node, config.members);
    network_.set_clock(node, {order.clock, order.clocks, order.events.clock_compared});
    return network_.transport_of(node);
  };
  auto before = system_->latest_actor_id();
  auto started = start_node(*system_, config, dependencies);
  own_actors_since(before, who);
  WAGGLE_CHECK(started.ok(), to_string(started.error()));
  made->node = *started;
  settle();
  return who;
}

void simulation::set_clock(index who, swarm_clock::duration by) {
  peers_[who]->machine->set(by);
}

void simulation::crash(index who, bool silently) {
  auto& p = *peers_[who];
  p.alive = false;
  network_.crash(who, silently);
  // The node actor first: otherwise it would take the death of the others as a reason to shut down
  // in good order.
  caf::anon_send_exit(p.node.node, caf::exit_reason::kill);
  settle();
  for (const auto& actor : everybody(p.node.parts))
    caf::anon_send_exit(actor, caf::exit_reason::kill);
  settle();
  p.node.parts = {};
  p.node.node = nullptr;
}

void simulation::shut_down(index who) {
  auto& p = *peers_[who];
  ask<training_status>(p.node.node, waggle::shut_down{"test"});
  p.alive = false;
  p.node.parts = {};
}

void simulation::settle() {
  while (run_job()) {
  }
}

bool simulation::run_job() {
  auto& jobs = coordinator_.jobs;
  auto next = jobs.begin();
  if (!frozen_.empty())
    next = std::find_if(jobs.begin(), jobs.end(), [this](const caf::resumable* job) {
      auto owner = owner_of(*job);
      return !owner || !frozen_.contains(*owner);
    });
  if (next == jobs.end())
    return false;
  std::rotate(jobs.begin(), next, next + 1);
  auto owner = owner_of(*jobs.front());
  auto before = system_->latest_actor_id();
  coordinator_.run_once();
  own_actors_since(before, owner);
  return true;
}

std::optional<simulation::index> simulation::owner_of(const caf::resumable& job) const {
  const auto* actor = dynamic_cast<const caf::scheduled_actor*>(&job);
  auto found = actor == nullptr ? owners_.end() : owners_.find(actor->id());
  return found == owners_.end() ? std::nullopt : std::optional{found->second};
}

void simulation::own_actors_since(caf::actor_id before, std::optional<index> who) {
  if (who)
    for (auto id = before + 1; id <= system_->latest_actor_id(); ++id)
      owners_.try_emplace(id, *who);
}

bool simulation::step(steady_time until) {
  settle();
  auto next = network_.next_event_time();
  const auto& timers = coordinator_.clock().schedule();
  if (!timers.empty() && (!next || timers.begin()->first < *next))
    next = timers.begin()->first;
  auto now = network_.now();
  auto target = std::max(next && *next < until ? *next : until, now); // see run_for
  network_.run_until(target);
  coordinator_.advance_time(target - coordinator_.clock().now());
  settle();
  return target < until;
}

void simulation::run_for(std::chrono::nanoseconds time) {
  auto until = network_.now() + time;
  while (step(until)) {
  }
}

bool simulation::run_until(const std::function<bool()>& what, std::chrono::nanoseconds limit) {
  auto until = network_.now() + limit;
  while (!what())
    if (!step(until))
      return what();
  return true;
}

std::vector<simulation::index> simulation::living() const {
  std::vector<index> all;
  for (index i = 0; i < peers_.size(); ++i)
    if (peers_[i]->alive)
      all.push_back(i);
  return all;
}

double simulation::seconds() const {
  return seconds_of(network_.now() - start_);
}

} // namespace waggle::testing
