#include "trainer/python/python_loop.hpp"

#include <cmath>
#include <limits>
#include <stdexcept>
#include <utility>

#include <unistd.h>

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
  explicit python_model(py::object model) : model_(std::move(model)) {}
  ~python_model() override {
    py::gil_scoped_acquire gil;
    model_ = {};
  }
  python_model(const python_model&) = delete;
  python_model& operator=(const python_model&) = delete;

  void apply(std::span<const float> gradient, double lr) override {
    py::gil_scoped_acquire gil;
    lent values{writable(gradient)};
    model_.attr("apply")(values.view(), lr);
    values.end();
  }
  void step(double lr) override {
    py::gil_scoped_acquire gil;
    model_.attr("step")(lr);
  }
  void read_tensor(std::size_t which, std::span<float> out) const override {
    py::gil_scoped_acquire gil;
    lent values{out};
    model_.attr("read")(which, values.view());
    values.end();
  }
  void write_tensor(std::size_t which, std::span<const float> from) override {
    py::gil_scoped_acquire gil;
    lent values{writable(from)};
    model_.attr("write")(which, values.view());
    values.end();
  }
  [[nodiscard]] std::uint64_t optimizer_steps() const override {
    py::gil_scoped_acquire gil;
    return model_.attr("steps")().cast<std::uint64_t>();
  }
  void set_optimizer_steps(std::uint64_t steps) override {
    py::gil_scoped_acquire gil;
    model_.attr("set_steps")(steps);
  }
  [[nodiscard]] std::uint64_t rounding() const override {
    py::gil_scoped_acquire gil;
    return model_.attr("rounding")().cast<std::uint64_t>();
  }

private:
  /// torch warns of memory that is read-only, and has no type for it.
  static std::span<float> writable(std::span<const float> values) {
    return {const_cast<float*>(values.data()), values.size()};
  }

  py::object model_;
};

/// Python's handlers of signals run on its main thread, when asked.
void run_signal_handlers() {
  py::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0)
    throw py::error_already_set();
}

/// Both ends are called with the GIL.
class busy_while {
public:
  explicit busy_while(bool& busy) : busy_(busy) { busy_ = true; }
  ~busy_while() { busy_ = false; }
  busy_while(const busy_while&) = delete;
  busy_while& operator=(const busy_while&) = delete;

private:
  bool& busy_;
};

template <class T>
T of(result<T> made) {
  if (made)
    return std::move(*made);
  if (made.error().code == ec::bad_config)
    throw std::invalid_argument{made.error().detail};
  throw swarm_error{made.error()};
}

} // namespace

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
  if (left())
    throw swarm_error{{ec::shutting_down, "this peer has left the run"}};
  if (busy_)
    throw swarm_error{{ec::not_owner, "this peer is in use: it steps or leaves at this moment"}};
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
                        const std::string& rate_ratios) {
  require_process();
  if (left())
    throw swarm_error{{ec::shutting_down, "this peer has left the run"}};
  if (session_->started())
    throw std::invalid_argument{
      "this swarm already has an optimizer: call waggle.join once for each optimizer"};
  if (auto fits = session_->configure(options); !fits)
    throw std::invalid_argument{fits.error().detail};
  auto schema = schema_of(table, optimizer, session_->model_function());
  std::vector<offered_tensor> offered;
  for (const auto& tensor : table.tensors())
    if (tensor.what == state_tensor::kind::parameter || tensor.what == state_tensor::kind::buffer)
      offered.push_back({nullptr, static_cast<std::size_t>(tensor.elements())});
  auto port =
    std::make_shared<loop_port>(std::move(table), schema, nullptr, session_->use_of_gradients());
  auto made = std::make_unique<python_model>(std::move(model));
  auto started = [&] {
    py::gil_scoped_release free;
    return session_->start(port, *made, optimizer, learning_rate, rate_ratios);
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
  busy_while here{busy_};
  py::gil_scoped_release free;
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

void python_loop::point_to(const std::optional<py::list>& addresses) {
  if (!addresses) {
    (void)gradient();
    auto* next = gradient_.data();
    for (auto& tensor : offered_) {
      tensor.values = next;
      next += tensor.count;
    }
    return;
  }
  if (addresses->size() != offered_.size())
    throw std::invalid_argument{"there must be an address for each parameter and each buffer"};
  for (std::size_t i = 0; i < offered_.size(); ++i)
    offered_[i].values = static_cast<const float*>(
      PyLong_AsVoidPtr(PyList_GET_ITEM(addresses->ptr(), static_cast<py::ssize_t>(i))));
  if (PyErr_Occurred() != nullptr)
    throw py::error_already_set{};
}

step_outcome python_loop::offer(std::uint64_t samples, std::optional<double> loss,
                                const std::optional<py::list>& addresses, std::uint64_t passes) {
  require_optimizer();
  session_->check_samples(samples);
  if (session_->was_over())
    return step_outcome::finished;
  point_to(addresses);
  busy_while here{busy_};
  py::gil_scoped_release free;
  micro_step pass{loss.value_or(std::numeric_limits<double>::quiet_NaN()), samples};
  pass.finite = std::isfinite(loss.value_or(0));
  return session_->offer(
    offered_, pass, [this] { return look(); }, passes);
}

/// While the loop's thread waits. Returns whether the run is over.
bool python_loop::look() {
  run_signal_handlers();
  bool is = session_->over();
  auto now = session_->status_seen();
  py::gil_scoped_acquire gil;
  status_ = std::move(now);
  return is;
}

void python_loop::keep(const py::bytes& what) {
  require_optimizer();
  port_->keep(what);
}

py::bytes python_loop::kept() {
  require_optimizer();
  {
    busy_while here{busy_};
    py::gil_scoped_release free;
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
  swarm_status now;
  {
    py::gil_scoped_release free;
    now = session_->status_now();
  }
  return status_ = std::move(now);
}

void python_loop::leave(bool in_a_hurry) {
  require_process();
  if (busy_)
    throw swarm_error{{ec::not_owner, "this peer is in use: it steps or leaves at this moment"}};
  if (left())
    return;
  std::optional<py::error_already_set> interrupted;
  auto hurry = [&interrupted] {
    py::gil_scoped_acquire gil;
    if (!interrupted && PyErr_CheckSignals() != 0)
      interrupted.emplace(); // takes the error, because the model's methods are still called
    return interrupted.has_value();
  };
  {
    busy_while here{busy_};
    auto ends = std::exchange(shards_, std::nullopt); // other threads look while the GIL is free
    py::gil_scoped_release free;
    if (model_)
      session_->stop(*model_, in_a_hurry, hurry);
    auto last = session_->status_now();
    ends.reset();
    session_.reset(); // waits for threads
    py::gil_scoped_acquire gil;
    status_ = std::move(last);
  }
  if (interrupted)
    throw std::move(*interrupted);
}

} // namespace waggle::python
