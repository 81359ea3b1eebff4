#include "waggle/averager.hpp"

#include <cmath>

#include "actors/service/running_step.hpp"
#include "runtime/core/try.hpp"
#include "runtime/crypto/digest.hpp"

namespace waggle {

namespace {

constexpr auto change_timeout = 5s; // the node answers at once
/// Peers with other tensors read from the DHT what ours are.
constexpr auto described_for = std::chrono::minutes{10};

} // namespace

std::shared_ptr<averager_table> averagers_of(const node_options& options, const node_parts& parts) {
  auto all = std::make_shared<averager_table>();
  for (std::size_t i = 0; i < options.averagers.size(); ++i)
    all->add({parts.further[i], options.averagers[i]});
  return all;
}

average_vector average_question(const average_options& options) {
  average_vector question{.weight = options.weight,
                          .deadline = options.timeout,
                          .expected_peers = options.expected_peers,
                          .reuse_group = options.keep_group,
                          .gather = options.gather,
                          .begin = options.scheduled_time,
                          .triggered = options.require_trigger};
  if (!options.allow_retries)
    question.retries = 0;
  return question;
}

result<average_report> average_report_of(const round_report& report) {
  if (report.outcome == round_outcome::failed)
    return report.why;
  return average_report{report.contributors,
                        report.weight_sum,
                        report.outcome == round_outcome::complete,
                        report.matchmaking_seconds + report.allreduce_seconds,
                        {report.gathered.begin(), report.gathered.end()}};
}

step_control::step_control(std::shared_ptr<running_step> step) : step_(std::move(step)) {}
step_control::~step_control() = default;

step_stage step_control::stage() const {
  return step_->stage();
}

status step_control::allow_allreduce() {
  return step_->allow_allreduce();
}

void step_control::cancel() {
  step_->cancel();
}

waggle::result<average_report> step_control::result(milliseconds timeout) {
  return step_->wait(timeout);
}

/// What the thread that gives states to other peers calls. None after the end of the averager.
struct state_giver {
  std::recursive_mutex mutex; // the last copy of an averager may end in its get_current_state
  std::function<result<payload>()> make;

  void end() {
    std::lock_guard guard{mutex};
    make = nullptr;
  }
};

struct averager::shared {
  ~shared() { giver->end(); }

  /// Of its state, and of the description of its tensors in the DHT.
  [[nodiscard]] static std::string key_of(const std::string& name) { return "averager " + name; }

  std::shared_ptr<tensors_in_use> tensors; // null: it has none
  const std::shared_ptr<state_giver> giver = std::make_shared<state_giver>();
  std::mutex mutex;
  std::optional<steady_time> described; // in the DHT; guarded by `mutex`
  publish_state sharing;                // guarded by `mutex`
  bool was_shared = false;              // guarded by `mutex`

  /// REQUIRES: it is not shared yet.
  void set_state(const averager_options& options) {
    sharing.name = key_of(options.name);
    sharing.shares = options.allow_state_sharing;
    sharing.priority = options.state_sharing_priority;
    sharing.declare_period = options.declare_state_period;
    if (auto get = options.get_current_state)
      giver->make = [get]() -> result<payload> {
        try {
          return encode_state(get());
        } catch (const std::exception& thrown) {
          return failure{ec::no_donor, std::string{"get_current_state: "} + thrown.what()};
        }
      };
    else if (tensors && !options.auxiliary)
      giver->make = [all = tensors] {
        std::lock_guard reading{all->mutex};
        return encode_state({{}, all->tensors.all()});
      };
    else
      return;
    sharing.make = [giver = giver]() -> result<payload> {
      std::lock_guard guard{giver->mutex};
      auto make = giver->make;
      return make ? make() : failure{ec::no_donor, "the averager has ended"};
    };
  }
  /// Tells the DHT what `change` makes of the terms.
  template <class Change>
  status share(running_node& peer, Change change) {
    std::lock_guard guard{mutex};
    auto next = sharing;
    change(next);
    if (next.shares && !next.make)
      return failure{ec::bad_config, "this averager has no state to share: give it "
                                     "averager_options::get_current_state, or tensors"};
    if (!std::isfinite(next.priority))
      return failure{ec::bad_config, "state_sharing_priority must be finite"};
    sharing = std::move(next);
    was_shared = true;
    return publish(peer, sharing);
  }

  void describe(const running_node& peer, const std::string& name) {
    auto now = std::chrono::steady_clock::now();
    std::lock_guard guard{mutex};
    if (!tensors || (described && now - *described < described_for / 2))
      return;
    described = now;
    auto text = tensors->tensors.description();
    auto subkey = to_string(sha256(text)).substr(0, 16);
    if (text.size() > 32_KiB)
      text.resize(text.rfind('\n', 32_KiB) + 1);
    auto entry = application_record(peer.node.ctx, key_of(name), subkey, text, described_for);
    if (!entry)
      return; // the name is too long for a key
    caller_thread here;
    caf::anon_send(peer.node.parts.dht, store_record{std::move(*entry)});
  }

  /// What other peers average under this name, if it differs from ours.
  failure explain(const running_node& peer, const std::string& name, const failure& why) const {
    if (!tensors || (why.code != ec::schema_mismatch && why.code != ec::non_finite))
      return why;
    if (why.code == ec::non_finite) {
      std::lock_guard reading{tensors->mutex};
      auto which = tensors->tensors.not_finite();
      return {why.code, which.empty() ? why.detail : which};
    }
    find_records query{.name = key_of(name), .timeout = 2s};
    auto ours = tensors->tensors.description();
    if (auto found =
          peer.ask<found_records>(peer.node.parts.dht, query.timeout + dht_margin, query))
      for (const auto& theirs : found->records)
        if (auto where = first_difference(ours, theirs.value); !where.empty())
          return {why.code, "another peer averages other tensors under '" + name + "': " + where};
    return why;
  }
};

result<averager> averager::of(const node& peer, const std::string& name) {
  WAGGLE_TRY(found, peer.running()->averagers->find(name));
  auto state = std::make_shared<shared>();
  state->set_state(found->options);
  return averager{peer.running(), name, std::move(state)};
}

result<averager> averager::add(const node& peer, const averager_options& options,
                               std::vector<averaged_tensor> tensors) {
  const auto& running = peer.running();
  auto state = std::make_shared<shared>();
  std::string description;
  if (!tensors.empty()) {
    auto codec = parse_codec_choice(options.codec);
    if (!codec)
      return failure{ec::bad_config, "averager_options::codec: " + codec.error().detail};
    WAGGLE_TRY(made, tensor_vector::make(std::move(tensors), *codec, options.auxiliary));
    description = made->description();
    state->tensors = std::make_shared<tensors_in_use>(std::move(*made));
  }
  WAGGLE_TRY(parts, averaging_parts_of(options, running->agreement.get(),
                                       running->node.ctx.record.client_mode, description));
  WAGGLE_TRY(made, running->ask<averaging_actors>(running->node.node, change_timeout,
                                                  add_averager{std::move(*parts)}));
  running->averagers->add({std::move(*made), options, state->tensors});
  state->describe(*running, options.name);
  state->set_state(options);
  if (options.allow_state_sharing || options.get_current_state)
    if (auto shared = state->share(*running, [](const publish_state&) {}); !shared)
      return shared.error();
  return averager{running, options.name, std::move(state)};
}

status averager::end() {
  WAGGLE_TRY(ended, peer_->ask<caf::unit_t>(peer_->node.node, change_timeout, end_averager{name_}));
  peer_->averagers->remove(name_);
  shared_->giver->end();
  std::unique_lock guard{shared_->mutex};
  bool told = shared_->was_shared;
  guard.unlock();
  return told ? allow_state_sharing(false) : status{done{}};
}

result<step_control> averager::begin(const average_options& options) {
  WAGGLE_TRY(found, peer_->averagers->find(name_));
  if (!shared_->tensors)
    return failure{ec::bad_config, "averager '" + name_
                                     + "' has no tensors: give them to averager::add, or call "
                                       "average with the values"};
  shared_->describe(*peer_, name_);
  auto step =
    running_step::begin(peer_, *found, shared_->tensors, options,
                        [peer = peer_, name = name_, state = shared_](const failure& why) {
                          return state->explain(*peer, name, why);
                        });
  if (!step)
    return step.error();
  return step_control{std::move(*step)};
}

result<average_report> averager::step(const average_options& options) {
  WAGGLE_TRY(step, begin(options));
  return step->result(options.timeout + 2s);
}

result<average_report> averager::average(std::span<float> values, const average_options& options) {
  if (values.empty())
    return failure{ec::wrong_shape, "there is nothing to average: the vector is empty"};
  WAGGLE_TRY(found, peer_->averagers->find(name_));
  WAGGLE_TRY(codec, parse_codec_choice(found->options.codec));
  WAGGLE_TRY(all, tensor_vector::make(
                    {{"values", tensor_type::float32, {values.size()}, values.data()}}, *codec));
  WAGGLE_TRY(step,
             running_step::begin(peer_, *found, std::make_shared<tensors_in_use>(std::move(*all)),
                                 options, {}));
  return (*step)->wait(options.timeout + 2s);
}

std::unique_lock<std::mutex> averager::lock() const {
  return shared_->tensors ? std::unique_lock{shared_->tensors->mutex}
                          : std::unique_lock<std::mutex>{};
}

result<std::string> averager::group_bits() const {
  WAGGLE_TRY(found, peer_->averagers->find(name_));
  auto now =
    peer_->ask<waggle::group_bits>(found->actors.matchmaker, change_timeout, get_group_bits{});
  return now ? result<std::string>{now->bits} : now.error();
}

status averager::set_group_bits(const std::string& bits) {
  WAGGLE_TRY(found, peer_->averagers->find(name_));
  auto now = peer_->ask<waggle::group_bits>(found->actors.matchmaker, change_timeout,
                                            waggle::set_group_bits{bits});
  return now ? status{done{}} : now.error();
}

result<averager_state> averager::load_state_from_peers(milliseconds timeout,
                                                       std::uint64_t bytes_max) const {
  WAGGLE_TRY(found, peer_->averagers->find(name_));
  WAGGLE_TRY(got, fetch_published(*peer_, {shared::key_of(name_), 0, bytes_max,
                                           /*equal_on_all=*/false, timeout}));
  return decode_state(std::make_shared<std::vector<std::byte>>(std::move(got->bytes)));
}

status averager::allow_state_sharing(bool allowed) {
  return shared_->share(*peer_, [allowed](publish_state& to) { to.shares = allowed; });
}

status averager::set_state_sharing_priority(double priority) {
  return shared_->share(*peer_, [priority](publish_state& to) { to.priority = priority; });
}

} // namespace waggle
