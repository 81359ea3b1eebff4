#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <memory>

#include "actors/actors.hpp"

namespace waggle::testing {

/// What a slow_worker holds back.
struct worker_gate {
  bool passes = false;  // hold passes
  bool updates = false; // hold updates
  /// One queue, as of a model_worker: whatever follows a command that is held waits, too.
  bool in_turn = true;
  std::deque<std::function<void()>> held{};

  /// From now on, nothing waits.
  void open() {
    passes = updates = false;
    while (!held.empty()) {
      auto next = std::move(held.front());
      held.pop_front();
      next();
    }
  }
};

/// In front of a model_worker: holds commands back, as if the model took long to compute them. In
/// virtual time the real worker takes none.
class slow_worker final : public model_worker_actor::base {
public:
  slow_worker(caf::actor_config& cfg, model_worker_actor inner, std::shared_ptr<worker_gate> gate)
    : model_worker_actor::base(cfg), inner_(std::move(inner)), passes_(inner_),
      gate_(std::move(gate)) {
    link_to(inner_);
  }
  void on_exit() override {
    gate_->held.clear();
    inner_ = nullptr;
    passes_ = nullptr;
  }

protected:
  behavior_type make_behavior() override {
    return {
      [this](const run_pass& msg) { hold(gate_->passes, passes_, msg); },
      [this](make_model msg) -> caf::result<model_ready> {
        auto promise = make_response_promise<model_ready>();
        request(inner_, std::chrono::minutes{60}, msg)
          .then(
            [this, promise](model_ready ready) mutable {
              passes_ = std::exchange(ready.passes, this);
              promise.deliver(std::move(ready));
            },
            [promise](const caf::error& why) mutable { promise.deliver(why); });
        return promise;
      },
      [this](const apply_update& msg) { hold(gate_->updates, inner_, msg); },
      [this](const load_image& msg) { hold(false, inner_, msg); },
      [this](const rename_history& msg) { hold(false, inner_, msg); },
      [this](const resume_at& msg) { hold(false, inner_, msg); },
      [this](run_job msg) { return delegate(inner_, msg); },
      [this](save_checkpoint msg) { return delegate(inner_, msg); },
      [this](const get_state_snapshot& msg) { return delegate(inner_, msg); },
    };
  }

private:
  template <class Handle, class Message>
  void hold(bool shut, const Handle& to, const Message& msg) {
    if (shut || (gate_->in_turn && !gate_->held.empty()))
      gate_->held.emplace_back([to, msg] { caf::anon_send(to, msg); });
    else
      send(to, msg);
  }

  model_worker_actor inner_;
  pass_worker_actor passes_;
  const std::shared_ptr<worker_gate> gate_;
};

} // namespace waggle::testing
