// This file is long: it is all that a loop in Python asks of its peer, and the model that the peer
// sees, which share the GIL.

#include "trainer/python/python_loop.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <utility>

#include <pybind11/stl.h>
#include <unistd.h>

#include "trainer/python/gil.hpp"

namespace waggle::python {

namespace {

/// Values of ours as Python sees them during one call. It must not keep them.
class lent {
public:
  explicit lent(std::span<float> values)
    : view_(py::memoryview::from_buffer(values.data(), {static_cast<py::ssize_t>(values.size())},
                                        {static_cast<py::ssize_t>(sizeof(float))})) {}
  [[nodiscard]] const py::memoryview& view() const { return view_; }
  /// Throws BufferError if something still refers to the values.
  void end() const { view_.attr("release")(); }

private:
  py::memoryview view_;
};

class python_model final : public loop_model {
public:
  /// `left_out`: the number of the tensor left_out_name, which Python's methods do not count.
  python_model(py::object model, std::size_t left_out)
    : model_(std::move(model)), left_out_(left_out) {}
  ~python_model() override {
    py::gil_scoped_acquire gil;
    model_ = {};
  }
  python_model(const python_model&) = delete;
  python_model& operator=(const python_model&) = delete;

  void settle(const update_terms& terms) override { call("settle", terms.numbers, terms.present); }
  void apply(std::span<const float> gradient, double lr) override {
    py::gil_scoped_acquire gil;
    lent values{writable(gradient)};
    model_.attr("apply")(values.view(), lr);
    values.end();
  }
  void step(double lr) override { call("step", lr); }
  void refresh() override { call("refresh"); }
  void read_tensor(std::size_t which, std::span<float> out) const override {
    if (which == left_out_)
      return lend("read_left_out", out);
    lend("read", out, which - (which > left_out_ ? 1 : 0));
  }
  void write_tensor(std::size_t which, std::span<const float> from) override {
    if (which == left_out_)
      return lend("write_left_out", writable(from));
    lend("write", writable(from), which - (which > left_out_ ? 1 : 0));
  }
  [[nodiscard]] std::uint64_t optimizer_steps() const override {
    py::gil_scoped_acquire gil;
    return model_.attr("steps")().cast<std::uint64_t>();
  }
  void set_optimizer_steps(std::uint64_t steps) override { call("set_steps", steps); }
  void add_gradient(float keep, float times) override { call("add_gradient", keep, times); }
  void read_gradient(std::span<float> out) const override { lend("read_gradient", out); }
  void write_gradient(std::span<const float> sum) override {
    lend("write_gradient", writable(sum));
  }
  [[nodiscard]] std::uint64_t rounding() const override {
    py::gil_scoped_acquire gil;
    return model_.attr("rounding")().cast<std::uint64_t>();
  }

private:
  template <class... Arguments>
  void call(const char* method, const Arguments&... arguments) const {
    py::gil_scoped_acquire gil;
    model_.attr(method)(arguments...);
  }
  template <class... Before>
  void lend(const char* method, std::span<float> values, Before... before) const {
    py::gil_scoped_acquire gil;
    lent during{values};
    model_.attr(method)(before..., during.view());
    during.end();
  }
  /// torch warns of memory that is read-only, and has no type for it.
  static std::span<float> writable(std::span<const float> values) {
    return {const_cast<float*>(values.data()), values.size()};
  }

  py::object model_;
  const std::size_t left_out_;
};

/// Python's handlers of signals run on its main thread, when asked.
void run_signal_handlers() {
  py::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0)
    throw py::error_already_set();
}

template <class T>
T of(result<T> made) {
  if (made)
    return std::move(*made);
  if (made.error().code == ec::bad_config)
    throw std::invalid_argument{made.error().detail};
  throw swarm_error{made.error()};
}

/// Of a number that is out of all bounds, one that is out of a notice's.
milliseconds notice_of(double seconds) {
  constexpr double longest = 1e9;
  return milliseconds{seconds > 0 ? std::llround(std::min(seconds, longest) * 1000) : 0};
}

failure has_left() {
  return {ec::shutting_down, "this peer has left the run"};
}

failure in_use() {
  return {ec::not_owner, "this peer is in use: it steps or leaves at this moment"};
}

} // namespace

void check_notice(double within) {
  if (auto fits = leave_notice::check(notice_of(within)); !fits)
    throw std::invalid_argument{fits.error().detail};
}

/// While a thread is in the peer without the GIL. Another one that is there already: swarm_error.
class python_loop::away {
public:
  explicit away(python_loop& loop) : loop_(loop) {
    {
      std::lock_guard lock{loop.mutex_};
      if (loop.user_ != std::thread::id{})
        throw swarm_error{in_use()};
      loop.user_ = std::this_thread::get_id();
    }
    free_.emplace();
  }
  ~away() {
    if (!program_ends())
      free_.reset(); // before whoever waits for this thread gets the GIL
    {
      std::lock_guard lock{loop_.mutex_};
      loop_.user_ = {};
    }
    loop_.free_.notify_all();
  }
  away(const away&) = delete;
  away& operator=(const away&) = delete;

private:
  python_loop& loop_;
  std::optional<without_gil> free_;
};

python_loop::python_loop(const swarm_options& options)
  : session_(of(swarm_session::prepare(options))), process_(::getpid()),
    thread_(std::this_thread::get_id()) {
  where_.id = to_string(session_->id());
  where_.data_dir = session_->data_dir().string();
}

python_loop::~python_loop() {
  if (::getpid() != process_) {
    // The peer's threads do not exist here, so nothing can be taken down.
    static_cast<void>(new std::shared_ptr<swarm_session>{session_});
    static_cast<void>(new std::shared_ptr<loop_port>{port_});
    return;
  }
  try {
    leave(true);
  } catch (const std::exception&) {
    // A signal came meanwhile. Nobody is left whom it could interrupt.
  }
}

void python_loop::require_process() const {
  if (::getpid() != process_)
    throw swarm_error{{ec::not_owner, "this peer belongs to process " + std::to_string(process_)
                                        + ", from which this one was forked: use it there only"}};
}

void python_loop::require_loop() const {
  require_process();
  if (program_ends())
    without_gil{}; // which does not return
  if (left() || leaving_)
    throw swarm_error{has_left()};
  if (std::this_thread::get_id() != thread_)
    throw swarm_error{{ec::not_owner, "this peer belongs to the thread that constructed it: call "
                                      "step there only"}};
}

void python_loop::require_optimizer() const {
  require_loop();
  if (!port_)
    throw swarm_error{{ec::not_ready, "this peer has no optimizer yet"}};
}

const python_loop::place& python_loop::where() const {
  require_process();
  return where_;
}

void python_loop::start(py::object model, const swarm_options& options, state_table table,
                        const optimizer_identity& optimizer, double learning_rate,
                        const std::string& rate_ratios, const frozen_tensors& frozen,
                        const std::string& rounds, bool on_device, bool hears_gradients) {
  require_process();
  if (left())
    throw swarm_error{has_left()};
  if (session_->started())
    throw std::invalid_argument{
      "this swarm already has an optimizer: call waggle.join once for each optimizer"};
  if (auto fits = session_->configure(options); !fits)
    throw std::invalid_argument{fits.error().detail};
  auto schema = schema_of(table, optimizer, session_->model_function());
  std::vector<offered_tensor> offered;
  for (const auto& tensor : table.tensors())
    if (tensor.what == state_tensor::kind::parameter || tensor.what == state_tensor::kind::buffer
        || tensor.what == state_tensor::kind::counter)
      offered.push_back({nullptr, static_cast<std::size_t>(tensor.elements())});
  if (auto terms = static_cast<std::size_t>(table.term_count()); terms > 0)
    offered.push_back({nullptr, terms});
  const auto& all = table.tensors();
  auto left_out = std::ranges::find(all, left_out_name, &state_tensor::name) - all.begin();
  std::shared_ptr<loop_model> master;
  if (session_->place() == update_place::beside_passes)
    master = std::make_shared<python_model>(model, static_cast<std::size_t>(left_out));
  auto made = std::make_unique<python_model>(std::move(model), static_cast<std::size_t>(left_out));
  auto port = std::make_shared<loop_port>(std::move(table), schema, std::move(master),
                                          session_->use_of_gradients(), on_device);
  if (hears_gradients)
    port->backward().hear();
  auto started = [&] {
    away here{*this};
    return session_->start(port, *made, optimizer, learning_rate, rate_ratios, frozen, rounds);
  }();
  if (!started)
    throw std::invalid_argument{started.error().detail};
  if (session_->address())
    where_.address = to_string(*session_->address());
  for (const auto& each : session_->addresses())
    where_.addresses.push_back(to_string(each));
  thread_ = std::this_thread::get_id();
  model_ = std::move(made);
  port_ = std::move(port);
  offered_ = std::move(offered);
  wish(std::nullopt);
}

void python_loop::computed(std::size_t parameter, std::uintptr_t address, std::uint64_t samples) {
  require_optimizer();
  if (session_->was_over() || address == 0)
    return;
  port_->computed(parameter, reinterpret_cast<const float*>(address), samples);
}

void python_loop::discard_pass() {
  require_optimizer();
  port_->backward().discard();
}

void python_loop::deal(std::uint64_t samples, std::uint64_t passes) {
  require_loop();
  shards_ = of(shards::of(swarm{session_}, samples, passes));
}

void python_loop::require_shards() const {
  require_optimizer();
  if (!shards_)
    throw swarm_error{{ec::not_ready, "this peer has no shards"}};
}

/// Calls what may wait, or call the model, on the loop's thread.
template <class Call>
auto python_loop::waiting(Call call) {
  away here{*this};
  return call([this] { return look(); });
}

bool python_loop::begin_shards() {
  require_shards();
  return waiting([this](const auto& over) { return shards_->begin(over); });
}

std::vector<std::uint64_t> python_loop::next_shards(std::uint64_t most) {
  require_shards();
  // Per sample: another thread may keep the GIL for 5 ms when it is given up.
  if (auto ready = shards_->ready(most); !ready.empty())
    return ready;
  return waiting([&](const auto& over) { return shards_->next(most, over); });
}

std::uint64_t python_loop::passes_complete() const {
  require_process();
  if (shards_)
    return shards_->passes_complete();
  return status_.passes.empty() ? 0 : status_.passes.back().pass - 1;
}

py::memoryview python_loop::gradient() {
  require_loop();
  if (gradient_.empty() && port_)
    gradient_.resize(port_->tensors().parameter_count() + port_->tensors().buffer_count());
  return lent{gradient_}.view();
}

void python_loop::wish(std::optional<double> rate) {
  require_loop();
  if (!port_ || port_->tensors().numbers() == 0)
    return;
  const auto& table = port_->tensors();
  update_terms terms{table.indices_of({state_tensor::kind::parameter}).size(), table.numbers()};
  for (std::size_t i = 0; i < terms.present.size(); ++i)
    terms.number(i, 0) = rate;
  terms_.resize(static_cast<std::size_t>(table.term_count()));
  terms.write(terms_);
}

void python_loop::point_to(const std::optional<py::list>& addresses) {
  if (!addresses) {
    (void)gradient();
    auto* next = gradient_.data();
    for (auto& tensor : offered_) {
      tensor.values = next;
      next += tensor.count;
    }
    if (!terms_.empty())
      offered_.back().values = terms_.data();
    return;
  }
  if (addresses->size() != offered_.size())
    throw std::invalid_argument{"there must be an address for each parameter, buffer and term"};
  for (std::size_t i = 0; i < offered_.size(); ++i)
    offered_[i].values = static_cast<const float*>(
      PyLong_AsVoidPtr(PyList_GET_ITEM(addresses->ptr(), static_cast<py::ssize_t>(i))));
  if (PyErr_Occurred() != nullptr)
    throw py::error_already_set{};
}

step_outcome python_loop::offer(std::uint64_t samples, std::optional<double> loss,
                                const std::optional<py::list>& addresses, std::uint64_t passes,
                                std::string written, bool finite, std::uint64_t claims,
                                double scale) {
  require_optimizer();
  session_->check_samples(samples, option_writer::python_loop, claims);
  if (session_->was_over())
    return step_outcome::finished;
  point_to(addresses);
  away here{*this};
  micro_step pass{loss.value_or(std::numeric_limits<double>::quiet_NaN()), samples};
  pass.finite = finite && std::isfinite(loss.value_or(0));
  if (const auto& scaler = session_->loss_scale(); scaler && scale > 0)
    scaler->note(pass, scale, std::isfinite(loss.value_or(0)));
  pass.written = std::move(written);
  if (claims > 0)
    session_->draws()->weigh(samples, claims);
  return session_->offer(
    offered_, pass, [this] { return look(); }, passes);
}

/// While the loop's thread waits. Returns whether the run is over.
bool python_loop::look() {
  if (leaving_ || program_ends())
    throw swarm_error{has_left()};
  run_signal_handlers();
  bool is = session_->over();
  auto now = session_->status_seen();
  py::gil_scoped_acquire gil;
  status_ = std::move(now);
  return is;
}

std::optional<double> python_loop::loss_scale() const {
  const auto* scaler = session_ ? session_->loss_scale().get() : nullptr;
  return scaler != nullptr ? std::optional{scaler->scale()} : std::nullopt;
}

void python_loop::keep(const py::bytes& what) {
  require_optimizer();
  port_->keep(what);
}

py::bytes python_loop::kept() {
  require_optimizer();
  {
    away here{*this};
    port_->await_pass(*model_, [this] { return look(); });
  }
  return port_->kept();
}

void python_loop::show_shared() {
  require_optimizer();
  port_->show_shared(*model_);
}

void python_loop::show_own() {
  require_process();
  if (left())
    return;
  require_loop();
  port_->show_own(*model_);
}

swarm_status python_loop::status() {
  require_process();
  if (left() || std::this_thread::get_id() != thread_)
    return status_;
  auto session = session_; // another thread may leave meanwhile
  swarm_status now;
  {
    without_gil free;
    now = session->status_now();
  }
  return status_ = std::move(now);
}

void python_loop::show_ranks(std::vector<rank_pace> all) const {
  require_process();
  if (session_ && session_->node() != nullptr)
    session_->node()->board->show_ranks(std::move(all));
}

void python_loop::notice(double within) const {
  require_process();
  auto session = session_; // another thread may leave meanwhile
  if (!session)
    return;
  if (auto given = session->notice(notice_of(within)); !given)
    throw std::invalid_argument{given.error().detail};
}

/// Of another thread in the peer: it ends, or has left.
void python_loop::end_wait() {
  bool ended = true;
  {
    without_gil free;
    std::unique_lock lock{mutex_};
    if (user_ != std::this_thread::get_id()) {
      leaving_ = true;
      ended = free_.wait_for(lock, end_of_wait_max, [this] { return user_ == std::thread::id{}; });
    } else {
      ended = false; // e.g. in a handler of a signal
    }
  }
  if (ended)
    return;
  leaving_ = false;
  throw swarm_error{in_use()};
}

void python_loop::leave(bool in_a_hurry) {
  require_process();
  end_wait();
  if (left())
    return;
  std::optional<py::error_already_set> interrupted;
  auto hurry = [&interrupted] {
    if (program_ends())
      return true;
    py::gil_scoped_acquire gil;
    if (!interrupted && PyErr_CheckSignals() != 0)
      interrupted.emplace(); // takes the error, because the model's methods are still called
    return interrupted.has_value();
  };
  swarm_status last;
  {
    // Other threads look at these while the GIL is free.
    auto session = std::exchange(session_, nullptr);
    auto ends = std::exchange(shards_, std::nullopt);
    away here{*this};
    if (model_)
      session->stop(*model_, in_a_hurry, hurry);
    last = session->status_now();
    ends.reset();
    session.reset(); // waits for threads
  }
  status_ = std::move(last);
  if (interrupted)
    throw std::move(*interrupted);
}

} // namespace waggle::python
