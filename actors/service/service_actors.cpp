// put_value, get_values ─► dht_router     run_step ─► averager (its tensors are read and written here)
// donate_state ─► state_publisher          fetch_version ─► state_search, one for each

#include <caf/all.hpp>

#include "actors/guard.hpp"
#include "actors/service/running_step.hpp"
#include "runtime/averaging/part_reducer.hpp"
#include "runtime/core/try.hpp"
#include "waggle/actors.hpp"

namespace waggle {

namespace {


template <class Self>
void end_with(Self self, const node_actor& node) {
  self->monitor(node);
  self->set_down_handler([self](const caf::down_msg&) { self->quit(); });
}

template <class T>
void deliver(caf::typed_response_promise<T> promise, result<T> what) {
  if (what)
    promise.deliver(std::move(*what));
  else
    promise.deliver(to_caf(what.error()));
}

/// For handlers of errors.
template <class T>
auto refuse(caf::typed_response_promise<T> promise) {
  return [promise](const caf::error& why) mutable { promise.deliver(to_caf(why_unanswered(why))); };
}

// -- the DHT --------------------------------------------------------------------------------------

dht_actor::behavior_type serve_dht(dht_actor::pointer self, const started_node& node) {
  end_with(self, node.node);
  return {
    [self, ctx = node.ctx, dht = node.parts.dht](const put_value& msg) -> caf::result<done> {
      auto entry = application_record(ctx, msg.key, msg.subkey, msg.value, msg.lifetime);
      auto valid = entry ? check_timeout(msg.timeout, "timeout") : status{entry.error()};
      if (!valid)
        return to_caf(valid.error());
      auto promise = self->make_response_promise<done>();
      self->request(dht, msg.timeout + dht_margin, store_record{std::move(*entry), msg.timeout})
        .then([promise, key = msg.key](
                const store_report& report) { deliver(promise, put_status(report, key)); },
              refuse(promise));
      return promise;
    },
    [self, dht = node.parts.dht](const get_values& msg) -> caf::result<values_found> {
      if (auto valid = check_timeout(msg.timeout, "timeout"); !valid)
        return to_caf(valid.error());
      auto promise = self->make_response_promise<values_found>();
      self
        ->request(dht, msg.timeout + dht_margin,
                  find_records{record_kind::open, msg.key, true, msg.timeout})
        .then(
          [promise](const found_records& found) mutable {
            promise.deliver(values_found{dated_values_of(found)});
          },
          refuse(promise));
      return promise;
    },
  };
}

// -- an averager ----------------------------------------------------------------------------------

/// What waggle/actors.hpp promises of an averager.
class averaging_front final : public averaging_actor::base {
public:
  averaging_front(caf::actor_config& cfg, const started_node& node, averager_table::entry of,
                  std::shared_ptr<averager_table> all)
    : averaging_actor::base(cfg), ctx_(node.ctx), node_(node.node), reports_(node.parts.reports),
      of_(std::move(of)), all_(std::move(all)) {}

  const char* name() const override { return "averaging"; }
  void on_exit() override {
    cancel();
    if (promise_.pending())
      end();
    node_ = nullptr;
    reports_ = nullptr;
    of_ = {};
  }

protected:
  behavior_type make_behavior() override {
    monitor(node_);
    set_down_handler([this](const caf::down_msg&) {
      if (promise_.pending()) {
        end();
        promise_.deliver(to_caf(ec::shutting_down, "this peer has left the run"));
      }
      quit();
    });
    return {
      [this](run_step& msg) { return run(msg); },
      [this](allow_step) { return allow(); },
      [this](stop_step) { cancel(); },
    };
  }

private:
  caf::result<step_ended> run(run_step& msg) {
    if (promise_.pending())
      return to_caf(ec::overloaded, "this averager has a step that runs: wait for it, or stop it");
    if (auto valid = check_timeout(msg.how.timeout, "average_options::timeout"); !valid)
      return to_caf(valid.error());
    values_ = std::move(msg.values);
    if (auto set = set_tensors(); !set)
      return to_caf(set.error());
    progress_ = std::make_shared<step_progress>();
    auto question = step_question(msg.how, *tensors_, progress_);
    waits_ = question.triggered;
    if (!waits_) {
      auto read = tensors_->read(*ctx_.vectors, of_.options.auxiliary);
      if (!read)
        return to_caf(read.error());
      sent_ = question.values = std::move(*read);
    }
    if (!all_->begin_round())
      return to_caf(ec::not_ready, "this peer is paused");
    promise_ = make_response_promise<step_ended>();
    auto limit = question.deadline + 1s;
    request(of_.actors.averager, limit, std::move(question))
      .then([this](const round_report& report) { on_report(report); },
            [this](const caf::error& why) {
              end();
              promise_.deliver(to_caf(why_unanswered(why)));
            });
    return promise_;
  }

  status set_tensors() {
    if (values_.empty()) {
      tensors_ = of_.tensors.lock();
      return tensors_ ? status{waggle::done{}}
                      : failure{ec::bad_config, "the averager '" + of_.options.name
                                                  + "' has no tensors: give values"};
    }
    auto codec = parse_codec_choice(of_.options.codec);
    WAGGLE_TRY(made,
               tensor_vector::make(
                 {{"values", tensor_type::float32, {values_.size()}, values_.data()}}, *codec));
    tensors_ = std::make_shared<tensors_in_use>(std::move(*made));
    return waggle::done{};
  }

  caf::result<waggle::done> allow() {
    if (!promise_.pending())
      return to_caf(ec::not_looking, "this averager has no step that runs");
    if (!waits_)
      return waggle::done{};
    auto values = tensors_->read(*ctx_.vectors, of_.options.auxiliary);
    if (!values)
      return to_caf(values.error());
    if (*values && !all_finite(**values))
      return to_caf(ec::non_finite, tensors_->tensors.not_finite());
    waits_ = false;
    sent_ = *values;
    send(of_.actors.averager, trigger_step{progress_, std::move(*values)});
    return waggle::done{};
  }

  void cancel() {
    if (promise_.pending())
      send(of_.actors.averager, cancel_step{progress_});
  }

  void on_report(const round_report& ended) {
    end();
    report_round(reports_, ended);
    auto report = average_report_of(ended);
    if (!report) {
      promise_.deliver(to_caf(report.error()));
      return;
    }
    if (ended.values && !of_.options.auxiliary)
      tensors_->write(ended, sent_.get(), of_.options.alpha);
    tensors_.reset();
    sent_.reset();
    promise_.deliver(step_ended{std::move(*report), std::move(values_)});
  }

  void end() { all_->end_round(); }

  const node_context ctx_;
  node_actor node_;
  report_relay_actor reports_;
  averager_table::entry of_;
  const std::shared_ptr<averager_table> all_;
  // Of the step that runs.
  caf::typed_response_promise<step_ended> promise_;
  std::vector<float> values_;
  std::shared_ptr<tensors_in_use> tensors_;
  std::shared_ptr<step_progress> progress_;
  std::shared_ptr<const float_vector> sent_;
  bool waits_ = false; // for allow_step
};

// -- states ---------------------------------------------------------------------------------------

state_actor::behavior_type serve_states(state_actor::pointer self, const started_node& node,
                                        const state_publisher_actor& publisher) {
  end_with(self, node.node);
  return {
    [self, publisher](donate_state& msg) -> caf::result<done> {
      auto valid = check_donation(msg.version, msg.bytes.size());
      if (valid)
        valid = check_state_name(msg.name);
      if (!valid)
        return to_caf(valid.error());
      auto bytes = std::make_shared<const std::vector<std::byte>>(std::move(msg.bytes));
      auto promise = self->make_response_promise<done>();
      self
        ->request(caf::actor_cast<caf::actor>(publisher), publish_timeout,
                  publish_state{std::move(msg.name), msg.version, payload_of(std::move(bytes))})
        .then([promise]() mutable { promise.deliver(done{}); }, refuse(promise));
      return promise;
    },
    [self, node](const fetch_version& msg) -> caf::result<fetched_version> {
      auto valid = check_state_name(msg.name);
      if (valid)
        valid = check_timeout(msg.timeout, "timeout");
      if (!valid)
        return to_caf(valid.error());
      auto search = self->spawn<state_search, caf::detached>(node); // it copies the bytes
      return self->delegate(
        search, state_query{msg.name, msg.version_min, msg.bytes_max, true, msg.timeout});
    },
  };
}

} // namespace

failure why_failed(const caf::error& error) {
  return why_unanswered(error);
}

result<dht_actor> dht_of(const node& peer) {
  const auto& it = *peer.running();
  if (it.node.board->has_ended())
    return failure{ec::shutting_down, "this peer has left the run"};
  caller_thread here;
  return it.system->spawn(serve_dht, it.node);
}

result<averaging_actor> averager_of(const node& peer, const std::string& name) {
  const auto& it = *peer.running();
  if (it.node.board->has_ended())
    return failure{ec::shutting_down, "this peer has left the run"};
  WAGGLE_TRY(found, it.averagers->find(name));
  caller_thread here;
  return averaging_actor{
    it.system->spawn<averaging_front>(it.node, std::move(*found), it.averagers)};
}

result<state_actor> state_of(const node& peer) {
  auto& it = *peer.running();
  if (it.node.board->has_ended())
    return failure{ec::shutting_down, "this peer has left the run"};
  const auto& publisher = publisher_of(it);
  caller_thread here;
  return it.system->spawn(serve_states, it.node, publisher);
}

} // namespace waggle
