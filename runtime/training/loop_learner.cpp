// This file is long: a learner's calls, and the port that carries them out on the loop's thread,
// are the two halves of one conversation.

#include "runtime/training/loop_learner.hpp"

#include <limits>

#include "runtime/core/check.hpp"

namespace waggle {

namespace {

class port_learner final : public learner {
public:
  port_learner(std::shared_ptr<loop_port> port, bool steps_locally)
    : port_(std::move(port)), steps_locally_(steps_locally) {}

  void use_shared(std::shared_ptr<const shared_parameters> shared) override {
    port_->use_shared(std::move(shared));
  }
  void use_vectors(std::shared_ptr<vector_pool> vectors) override {
    port_->backward().use_vectors(std::move(vectors));
  }
  micro_step accumulate() override { return port_->pass(); }
  micro_step accumulate_in_buckets(const early_gradient& when) override {
    return port_->pass(port_->backward().heard() ? &when : nullptr);
  }
  void at_epoch(epoch_id now) override { port_->set_epoch(now.value()); }
  void settle(std::span<const float> terms) override {
    auto parameters = tensors().indices_of({state_tensor::kind::parameter}).size();
    terms_ = update_terms::read(terms, parameters, tensors().numbers());
  }
  void apply(std::span<const float> gradient, double lr) override {
    auto terms = std::exchange(terms_, std::nullopt);
    if (terms)
      lr = terms->numbers.front().value_or(lr);
    call(effect::applied, [&](loop_model& m) {
      if (terms)
        m.settle(*terms);
      m.apply(gradient, lr);
    });
  }
  void merge_buffers(std::span<const float> mean, std::span<const float> contributed) override {
    call(effect::merged, [&](loop_model& m) { merge_buffers_of(m, tensors(), mean, contributed); });
  }
  void read_tensor(std::size_t which, std::span<float> out) const override {
    call(effect::none, [&](loop_model& m) { m.read_tensor(which, out); });
  }
  void write_tensor(std::size_t which, std::span<const float> values) override {
    call(effect::loading, [&](loop_model& m) { m.write_tensor(which, values); });
  }
  [[nodiscard]] std::uint64_t optimizer_steps() const override {
    std::uint64_t steps = 0;
    call(effect::none, [&](loop_model& m) { steps = m.optimizer_steps(); });
    return steps;
  }
  void set_optimizer_steps(std::uint64_t steps) override {
    call(effect::loaded, [&](loop_model& m) { m.set_optimizer_steps(steps); });
  }

  [[nodiscard]] std::uint64_t rounding() const override {
    std::uint64_t of = 0;
    call(effect::none, [&](loop_model& m) { of = m.rounding(); });
    return of;
  }

  [[nodiscard]] learner_abilities abilities() const override {
    bool in_place = port_->gradients().use() == gradient_use::in_place;
    return {.resumes = true,
            .keeps_gradient = !in_place,
            .steps_locally = steps_locally_,
            .copies_during_passes = steps_locally_ && port_->has_master(),
            .passes_beside_updates = port_->has_master(),
            .adds_in_place = in_place};
  }
  [[nodiscard]] const state_table& tensors() const override { return port_->tensors(); }
  [[nodiscard]] digest schema() const override { return port_->schema(); }
  mean_gradient take_mean_vector(vector_pool& vectors, std::size_t room) override {
    if (auto early = port_->gradients().take_early())
      return {std::move(early->values), early->samples, early->merges, std::move(early->fills)};
    auto out = vectors.take(gradient_count() + room);
    auto taken = take_mean(std::span{*out}.first(gradient_count()));
    return {std::move(out), taken.samples, taken.merges};
  }
  std::uint64_t drop_gradient() override { return port_->gradients().drop(); }
  [[nodiscard]] std::uint64_t accumulated_samples() const override {
    return port_->gradients().samples();
  }
  [[nodiscard]] std::uint64_t outdated_samples() const override {
    return port_->samples().outdated;
  }
  [[nodiscard]] bool waits_for_pass() const override {
    const auto& gradients = port_->gradients();
    return gradients.use() == gradient_use::in_place
           || (gradients.on_device() && gradients.use() == gradient_use::summed);
  }

  // -- over a restart: the position is what the loop keeps
  [[nodiscard]] std::string position() const override { return port_->gradients().position(); }
  [[nodiscard]] std::string taken_position() const override {
    return port_->gradients().taken_position();
  }
  status load_position(std::string_view position) override {
    port_->gradients().load_position(std::string{position});
    return done{};
  }
  [[nodiscard]] partial_gradient copy_gradient() const override {
    if (!port_->gradients().on_device())
      return port_->gradients().copy();
    partial_gradient out;
    call(effect::none, [&](const loop_model& m) { out = port_->gradients().copy(&m); });
    return out;
  }
  status load_gradient(const partial_gradient& partial) override {
    if (!port_->gradients().on_device())
      return port_->gradients().load(partial);
    status loaded = done{};
    call(effect::none, [&](loop_model& m) { loaded = port_->gradients().load(partial, &m); });
    return loaded;
  }

  // -- strategies that step with each gradient of the loop
  void step_locally(double lr) override {
    if (drop_gradient() == 0) // the loop has ended
      return;
    call(effect::applied, [&](loop_model& m) { m.step(lr); });
  }
  void add_change(std::span<const std::size_t> which, std::span<const float> mean,
                  std::span<const float> snapshot) override {
    call(effect::merged, [&](loop_model& m) {
      change_tensors_of(m, tensors(), which, mean, snapshot);
      ++changes_;
    });
  }
  std::optional<std::uint64_t> copy_tensors(std::span<const std::size_t> which,
                                            std::span<float> out) const override {
    std::uint64_t changes = 0;
    bool copied = port_->read_now([&](const loop_model& m) {
      copy_tensors_of(m, tensors(), which, out);
      changes = changes_; // which are made on the same thread
    });
    return copied ? std::optional{changes} : std::nullopt;
  }

private:
  using effect = loop_port::effect;

  void call(effect what, const std::function<void(loop_model&)>& work) const {
    port_->call(what, work);
  }
  offered_gradients::taken take_mean(std::span<float> out) {
    auto& gradients = port_->gradients();
    offered_gradients::taken taken;
    auto take = [&](const loop_model& m) { taken = gradients.take_mean(out, &m); };
    if (!gradients.on_device() || gradients.samples() == 0 || !port_->read_now(take))
      taken = gradients.take_mean(out);
    return taken;
  }

  const std::shared_ptr<loop_port> port_;
  const bool steps_locally_;
  std::optional<update_terms> terms_; // of the next `apply`
};

} // namespace

std::string_view to_string(step_outcome x) {
  constexpr std::string_view names[]{"held", "stepped", "synced", "dropped", "finished"};
  return names[static_cast<std::size_t>(x)];
}

loop_closed::loop_closed() : std::runtime_error("the training loop has ended") {}

loop_port::loop_port(state_table tensors, digest schema, std::shared_ptr<loop_model> master,
                     gradient_use use, bool on_device)
  : tensors_(std::move(tensors)), schema_(schema), master_(std::move(master)),
    last_loss_(std::numeric_limits<double>::quiet_NaN()),
    gradients_(tensors_.parameter_count(), tensors_.buffer_count() + tensors_.term_count(), use,
               update_terms::present_values(
                 tensors_.indices_of({state_tensor::kind::parameter}).size(), tensors_.numbers()),
               on_device),
    backward_(tensors_, gradients_) {
  WAGGLE_CHECK(!master_ || !on_device, "the worker would need the loop's thread");
  WAGGLE_CHECK(!master_ || tensors_.buffer_count() == 0,
               "passes would change the buffers while updates do");
}

// -- the loop's thread ----------------------------------------------------------------------------

/// Its thread carries calls out as long as this exists. REQUIRES: the lock is held at the
/// beginning.
class loop_port::presence {
public:
  presence(loop_port& port, guard& lock) : port_(port), lock_(lock) { port_.present_ = true; }
  ~presence() {
    if (!lock_.owns_lock())
      lock_.lock();
    port_.present_ = false;
    port_.worker_.notify_all();
  }
  presence(const presence&) = delete;
  presence& operator=(const presence&) = delete;

private:
  loop_port& port_;
  guard& lock_;
};

void loop_port::await_pass(loop_model& model, const is_over& over) {
  require_own();
  guard lock{mutex_};
  (void)serve_until_pass(lock, model, over);
}

bool loop_port::await_samples(loop_model& model, const is_over& over) {
  require_own();
  guard lock{mutex_};
  while (serve_until_pass(lock, model, over)) {
    if (draws_->any_left())
      return true;
    // The pass was begun for samples that another member has now.
    end_pass({last_loss_, 0, true});
  }
  return false;
}

void loop_port::keep(std::string bytes) {
  if (draws_)
    throw std::invalid_argument{"a loop with shards keeps nothing: the state of the run says which "
                                "samples come next"};
  if (bytes.size() > kept_bytes_max)
    throw std::length_error{"a loop keeps at most " + std::to_string(kept_bytes_max)
                            + " bytes, and these are " + std::to_string(bytes.size())};
  if (!backward_.empty())
    throw std::invalid_argument{"other peers may have a part of this step's gradient already: with "
                                "buckets=1, call keep before backward"};
  gradients_.keep(std::move(bytes));
}

step_outcome loop_port::offer(loop_model& model, std::span<const offered_tensor> gradient,
                              micro_step step, const is_over& over, std::uint64_t passes) {
  require_own();
  struct end {
    loop_port& port;
    ~end() {
      port.backward_.discard(); // one that was not added
      port.gradients_.take_away();
    }
  } const at_end{*this};
  guard lock{mutex_};
  struct unused_samples { // until they are in the gradient; also if this throws
    sample_draws* draws;
    guard& lock;
    std::uint64_t& outdated;
    std::uint64_t samples;
    bool drawn = true;
    ~unused_samples() {
      if (draws != nullptr && drawn && samples > 0)
        draws->put_back(samples);
      if (!lock.owns_lock())
        lock.lock();
      outdated += samples;
    }
  } unused{draws_.get(), lock, account_.outdated, step.samples};
  account_.offered += step.samples;
  auto before = in_module_;
  // With a master copy, the state may have changed since the pass began. The trainer knows whether
  // its gradient still counts.
  bool asked_for = master_ && pass_.began() && pass_.wanted() && !closed_ && !ended_;
  if (!asked_for && !serve_until_pass(lock, model, over))
    return step_outcome::finished;
  if (in_module_ != before)
    return in_module_.loaded != before.loaded ? step_outcome::synced : step_outcome::dropped;
  unused.drawn = false;
  if (draws_ && !draws_->offer(step.samples))
    return step_outcome::dropped;
  unused.samples = 0;
  account_.given += step.samples;
  offered_gradients::added added{.counts = false, .finite = false};
  if (step.finite) {
    added = gradients_.add(gradient, step.samples, passes, changes_.merged,
                           gradients_.on_device() ? &model : nullptr);
    step.finite = added.finite;
    step.lost = added.lost;
    step.taken = added.taken;
  } else {
    step.taken = gradients_.pass_over();
    if (gradients_.use() == gradient_use::in_place)
      step.lost = gradients_.drop(); // it is in the same buffers
  }
  if (step.finite)
    last_loss_ = step.loss;
  if (step.taken)
    account_.early += step.samples;
  end_pass(step);
  if (added.changed)
    throw std::invalid_argument{"the gradient, or the number of its samples, changed after the "
                                "backward pass, in which other peers may have received "
                                "a part of it: leave out buckets=1"};
  if (!serve_until_pass(lock, model, over))
    return step_outcome::finished;
  if (in_module_.loaded != before.loaded)
    return step_outcome::synced;
  if (!added.counts || gradients_.was_not_finite())
    return step_outcome::dropped;
  return in_module_ != before ? step_outcome::stepped : step_outcome::held;
}

void loop_port::computed(std::size_t parameter, const float* values, std::uint64_t samples) {
  if (backward_.add(parameter, values))
    return;
  guard lock{mutex_};
  if (draws_ || closed_ || ended_ || !pass_.due_early()
      || !backward_.begin_early(samples, changes_.merged))
    return;
  pass_.offer_early();
  worker_.notify_all();
  lock.unlock();
  backward_.write_all();
}

/// REQUIRES: mutex_ is held, and a pass is wanted.
void loop_port::end_pass(const micro_step& step) {
  pass_.end(step);
  worker_.notify_all();
}

/// Returns false if there is nothing more to wait for.
bool loop_port::serve_until_pass(guard& lock, loop_model& model, const is_over& over) {
  presence here{*this, lock};
  while (!closed_ && !ended_) {
    if (task_ != nullptr) {
      carry_out(lock, model);
    } else if (should_refresh()) {
      refresh(lock, model);
    } else if (pass_may_begin()) {
      pass_.begin();
      return true;
    } else if (!loop_.wait_for(lock, slice, [this] {
                 return task_ != nullptr || should_refresh() || pass_may_begin();
               })) {
      lock.unlock();
      bool is = over();
      lock.lock();
      if (is && task_ == nullptr && !pass_may_begin()) {
        if (should_refresh())
          refresh(lock, model);
        return false;
      }
    }
  }
  return false;
}

/// As soon as an update is complete: later, the next one may have begun, for whose end the loop
/// would have to wait. A state is loaded tensor by tensor, and copied as a whole.
bool loop_port::should_refresh() const {
  return changes_ != in_module_ && !loading_;
}

void loop_port::refresh(guard& lock, loop_model& model) {
  lock.unlock();
  std::lock_guard changing{changing_};
  lock.lock();
  if (loading_) // since the lock was given up
    return;
  lock.unlock();
  model.refresh();
  lock.lock();
  in_module_ = changes_;
}

void loop_port::require_own() const {
  if (shown_)
    throw std::logic_error{"the module has the shared parameters: it gets its own back first"};
}

void loop_port::show_shared(loop_model& model) {
  require_own();
  float_vector shared;
  if (guard lock{mutex_}; shared_) {
    shared.resize(shared_->count());
    shared_->copy(shared);
  }
  own_.resize(shared.size());
  for (std::size_t i = 0, at = 0; at < own_.size(); at += tensors_[i++].elements())
    model.read_tensor(i, std::span{own_}.subspan(at, tensors_[i].elements()));
  shown_ = true;
  write_parameters(model, shared);
}

void loop_port::show_own(loop_model& model) {
  write_parameters(model, own_);
  shown_ = false;
  own_ = {};
}

void loop_port::write_parameters(loop_model& model, std::span<const float> all) const {
  for (std::size_t i = 0, at = 0; at < all.size(); at += tensors_[i++].elements())
    model.write_tensor(i, all.subspan(at, tensors_[i].elements()));
}

void loop_port::serve(loop_model& model, std::chrono::milliseconds look_every,
                      const is_over& over) {
  show_own(model);
  backward_.discard();
  guard lock{mutex_};
  ended_ = true;
  worker_.notify_all();
  while (!closed_) {
    lock.unlock();
    bool is = over();
    lock.lock();
    if (is)
      break;
    presence here{*this, lock}; // not in `over`, which may wait for threads that read
    loop_.wait_for(lock, look_every, [this] { return task_ != nullptr; });
    while (task_ != nullptr)
      carry_out(lock, model);
  }
  if (should_refresh()) // a part of a state would be worse than the parameters before it
    refresh(lock, model);
}

void loop_port::carry_out(guard& lock, loop_model& model) {
  auto& now = *std::exchange(task_, nullptr);
  lock.unlock();
  std::exception_ptr thrown;
  try {
    (*now.work)(model);
  } catch (const std::exception& e) {
    thrown = std::current_exception();
    now.failed = e.what();
  } catch (...) {
    thrown = std::current_exception();
    now.failed = "an unknown exception";
  }
  lock.lock();
  count(now.what);
  in_module_ = changes_;
  now.done = true;
  worker_.notify_all();
  if (thrown)
    std::rethrow_exception(thrown);
}

/// REQUIRES: mutex_ is held.
void loop_port::count(effect what) {
  if (what == effect::applied)
    ++changes_.applied;
  else if (what == effect::merged)
    ++changes_.merged;
  else if (what == effect::loading || what == effect::loaded)
    ++changes_.loaded;
}

void loop_port::close() {
  backward_.discard();
  guard lock{mutex_};
  ended_ = closed_ = true;
  worker_.notify_all();
}

loop_port::account loop_port::samples() const {
  guard lock{mutex_};
  return account_;
}

// -- the worker's thread --------------------------------------------------------------------------

void loop_port::use_shared(std::shared_ptr<const shared_parameters> shared) {
  guard lock{mutex_};
  shared_ = std::move(shared);
}

micro_step loop_port::pass(const learner::early_gradient* when) {
  guard lock{mutex_};
  if (!ended_) {
    pass_.want(when);
    loop_.notify_one();
    auto is_over = [this] { return pass_.ended() || ended_; };
    worker_.wait(lock, [&] { return is_over() || pass_.early(); });
    if (pass_.early()) {
      lock.unlock();
      when->offered();
      lock.lock();
      worker_.wait(lock, is_over);
    }
  } else {
    // The trainer would request the next pass at once.
    worker_.wait_for(lock, empty_pass_pause, [this] { return closed_; });
  }
  // Without a gradient: hardly changes the mean loss, and no sum of samples.
  return pass_.take().value_or(micro_step{last_loss_, 0, true});
}

/// Nobody else changes the master copy, so this thread reads it without a lock.
void loop_port::change_master(effect what, const std::function<void(loop_model&)>& work) {
  if (what == effect::none)
    return work(*master_);
  std::lock_guard changing{changing_};
  work(*master_);
  guard lock{mutex_};
  count(what);
  if (what == effect::loading || what == effect::loaded)
    loading_ = what == effect::loading;
  loop_.notify_one();
}

void loop_port::call(effect what, const std::function<void(loop_model&)>& work) {
  if (master_)
    change_master(what, work);
  else if (!run(what, work, [this] { return closed_; }))
    throw loop_closed{};
}

bool loop_port::read_now(const std::function<void(const loop_model&)>& work) {
  if (!master_)
    return run(
      effect::none, [&work](loop_model& m) { work(m); }, [this] { return closed_ || !present_; });
  std::lock_guard changing{changing_};
  work(*master_);
  return true;
}

/// On the loop's thread. Returns whether it was carried out: not if `gone` was true before it
/// began.
bool loop_port::run(effect what, const std::function<void(loop_model&)>& work,
                    const std::function<bool()>& gone) {
  task own{what, &work, false, {}};
  guard lock{mutex_};
  worker_.wait(lock, [&] { return task_ == nullptr || gone(); });
  if (gone())
    return false;
  task_ = &own;
  loop_.notify_one();
  // A task that was started refers to this frame, so this waits for its end even if the port is
  // closed.
  worker_.wait(lock, [&] { return own.done || (gone() && task_ == &own); });
  if (!own.done) {
    task_ = nullptr;
    worker_.notify_all(); // a call may have waited for its turn
    return false;
  }
  if (own.failed)
    throw std::runtime_error{*own.failed};
  return true;
}

std::unique_ptr<learner> make_loop_learner(std::shared_ptr<loop_port> port, bool steps_locally) {
  if (steps_locally)
    port->gradients().lend();
  return std::make_unique<port_learner>(std::move(port), steps_locally);
}

} // namespace waggle
