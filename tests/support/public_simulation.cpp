// include/waggle/simulation.hpp: the simulation of our own tests for those of services.

#include <stdexcept>

#include "actors/service/running_node.hpp"
#include "tests/support/simulation.hpp"
#include "waggle/simulation.hpp"

namespace waggle {

struct simulation::impl {
  explicit impl(const options& o) : swarm(o.seed, network(o)) {}

  std::shared_ptr<bool> live = std::make_shared<bool>(true);

  static net::sim_network::options network(const options& o) {
    if (o.delay_min < 0ms || o.delay_max < o.delay_min)
      throw std::invalid_argument{"delay_min must be 0 or more, and delay_max no less"};
    return {.delay_min = o.delay_min, .delay_max = o.delay_max};
  }
  testing::simulation::peer& at(index who) {
    if (who >= swarm.size() || !swarm[who].alive)
      throw std::invalid_argument{"there is no peer " + std::to_string(who) + " that runs"};
    return swarm[who];
  }
  /// Sends a request and runs until it is answered, which it is within `limit`.
  template <class Answer, class Handle, class Question>
  result<Answer> ask(const Handle& receiver, milliseconds limit, Question question) {
    std::optional<result<Answer>> answer;
    swarm.system().spawn([&answer, receiver, question, limit](caf::event_based_actor* self) {
      self->request(receiver, limit, question)
        .then([&answer](const Answer& a) { answer.emplace(a); },
              [&answer](const caf::error& why) { answer.emplace(from_caf(why)); });
    });
    swarm.run_until([&] { return answer.has_value(); }, limit + 1s);
    return answer.value_or(result<Answer>{failure{ec::timeout, "no answer"}});
  }

  testing::simulation swarm;
  std::map<index, std::shared_ptr<averager_table>> averagers;
};

simulation::simulation() : simulation(options{}) {}
simulation::simulation(const options& o) : impl_(std::make_unique<impl>(o)) {}
simulation::~simulation() {
  if (impl_)
    impl_->live.reset();
}

simulation::index simulation::start(const node_options& o, const std::vector<index>& through) {
  for (auto other : through)
    impl_->at(other);
  auto own = o;
  own.initial_peers.clear();
  own.announce.clear(); // nothing here asks a name server
  own.listen = {"[::]:0"};
  own.data_dir.clear();
  auto config = node_config_of(own);
  if (!config)
    throw std::invalid_argument{config.error().detail};
  config->switchboard.announced_addresses.reset(); // the network in memory has other ones
  auto who = impl_->swarm.start(*config, through);
  impl_->averagers[who] = averagers_of(o, impl_->at(who).node.parts);
  return who;
}

const peer_id& simulation::id(index who) const {
  if (who >= impl_->swarm.size())
    throw std::invalid_argument{"there is no peer " + std::to_string(who)};
  return impl_->swarm[who].self->id();
}

void simulation::crash(index who, bool silently) {
  impl_->at(who);
  impl_->swarm.thaw(who);
  impl_->swarm.crash(who, silently);
}

void simulation::leave(index who) {
  impl_->at(who);
  impl_->swarm.thaw(who);
  impl_->swarm.shut_down(who);
}

void simulation::freeze(index who) {
  impl_->at(who);
  impl_->swarm.freeze(who);
}

void simulation::thaw(index who) {
  impl_->at(who);
  impl_->swarm.thaw(who);
}

void simulation::run_for(std::chrono::nanoseconds time) {
  impl_->swarm.run_for(time);
}

bool simulation::run_until(const std::function<bool()>& what, std::chrono::nanoseconds limit) {
  return impl_->swarm.run_until(what, limit);
}

std::chrono::nanoseconds simulation::now() const {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
    std::chrono::duration<double>(impl_->swarm.seconds()));
}

void simulation::average(index who, const std::string& averager, std::vector<float> values,
                         const average_options& how, averaged then) {
  impl_->at(who);
  if (values.empty())
    throw std::invalid_argument{"there is nothing to average: the vector is empty"};
  if (auto valid = check_timeout(how.timeout, "average_options::timeout"); !valid)
    throw std::invalid_argument{valid.error().detail};
  auto found = impl_->averagers[who]->find(averager);
  if (!found)
    throw std::invalid_argument{found.error().detail};
  auto question = average_question(how);
  question.values = std::make_shared<const float_vector>(values.begin(), values.end());
  // What still waits when the simulation ends is dropped: its end answers all requests.
  auto answer = [live = std::weak_ptr{impl_->live},
                 then = std::move(then)](const auto& ended, const std::vector<float>& mean) {
    if (!live.expired())
      then(ended, mean);
  };
  impl_->swarm.system().spawn([handle = found->actors.averager, values = std::move(values),
                               then = std::move(answer), question,
                               how](caf::event_based_actor* self) {
    self->request(handle, how.timeout + 1s, question)
      .then(
        [values, then](const round_report& report) {
          auto ended = average_report_of(report);
          then(ended,
               ended ? std::vector<float>(report.values->begin(), report.values->end()) : values);
        },
        [values, then](const caf::error& why) { then(from_caf(why), values); });
  });
}

status simulation::put(index who, const std::string& key, const std::string& subkey,
                       const std::string& value, milliseconds lifetime) {
  const auto& node = impl_->at(who).node;
  auto entry = application_record(node.ctx, key, subkey, value, lifetime);
  if (!entry)
    return entry.error();
  return put_status(
    impl_->ask<store_report>(node.parts.dht, dht_margin + 10s, store_record{*entry, 10s}), key);
}

result<std::map<std::string, std::string>> simulation::get(index who, const std::string& key) {
  find_records query{.name = key};
  return values_of(
    impl_->ask<found_records>(impl_->at(who).node.parts.dht, dht_margin + 10s, query));
}

} // namespace waggle
