#include "trainer/python/python_node.hpp"

#include <algorithm>
#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <stdexcept>

#include <pybind11/stl.h>
#include <pybind11/stl/filesystem.h>
#include <unistd.h>

#include "actors/loop/swarm.hpp"
#include "trainer/python/gil.hpp"
#include "trainer/python/log_lines.hpp"
#include "waggle/averager.hpp"
#include "waggle/dht.hpp"

namespace waggle::python {

namespace {

namespace py = pybind11;
using seconds = std::chrono::duration<double>;

milliseconds in_ms(double given) {
  constexpr double year = 365.0 * 24 * 3600;
  return std::chrono::ceil<milliseconds>(seconds{std::clamp(given, -1.0, 2 * year)});
}

[[noreturn]] void raise(failure why) {
  // Options have the same names here.
  for (const char* of : {"node_options::", "averager_options::", "average_options::"})
    if (auto at = why.detail.find(of); at != std::string::npos)
      why.detail.erase(at, std::string_view{of}.size());
  if (why.code == ec::bad_config)
    throw std::invalid_argument{why.detail};
  throw swarm_error{why};
}
template <class T>
T of(result<T> made) {
  if (!made)
    raise(made.error());
  return std::move(*made);
}
void check(const status& what) {
  if (!what)
    raise(what.error());
}

/// Calls what waits, while other threads of Python run.
template <class Call>
auto waiting(Call call) {
  without_gil free;
  return call();
}

/// Something that lives in one process: in a forked one its threads do not exist, so nothing can be
/// taken down.
template <class T>
class of_process {
public:
  explicit of_process(T made) : made_(std::make_unique<T>(std::move(made))) {}
  ~of_process() {
    if (::getpid() != process_)
      static_cast<void>(made_.release());
    else if (made_)
      waiting([this] { made_.reset(); });
  }
  of_process(const of_process&) = delete;
  of_process& operator=(const of_process&) = delete;

  T& get() const {
    if (::getpid() != process_)
      throw swarm_error{{ec::not_owner, "this peer belongs to process " + std::to_string(process_)
                                          + ", from which this one was forked: use it there only"}};
    if (program_ends())
      without_gil{}; // which does not return
    return *made_;
  }

private:
  std::unique_ptr<T> made_;
  const int process_ = ::getpid();
};
/// Calls what waits for `of`, which must be of this process.
template <class T, class Call>
auto waiting(const of_process<T>& of, Call call) {
  auto& mine = of.get(); // with the GIL
  return waiting([&] { return call(mine); });
}
using a_node = of_process<node>;
using an_averager = of_process<averager>;
using a_step = of_process<step_control>;

struct held_tensors {
  explicit held_tensors(std::unique_lock<std::mutex> held) : lock(std::move(held)) {}
  std::unique_lock<std::mutex> lock;
};

template <class T>
void take(const py::dict& from, const char* name, T& to) {
  if (from.contains(name))
    to = from[name].cast<T>();
}
void take(const py::dict& from, const char* name, milliseconds& to) {
  if (from.contains(name))
    to = in_ms(from[name].cast<double>());
}

std::unique_ptr<a_node> start(const py::dict& given, std::shared_ptr<log_lines> log) {
  node_options o;
  take(given, "run", o.run);
  take(given, "swarm_key", o.swarm_key);
  take(given, "members", o.members);
  take(given, "members_list", o.members_list);
  take(given, "encrypt", o.encrypt);
  take(given, "initial_peers", o.initial_peers);
  take(given, "listen", o.listen);
  take(given, "announce", o.announce);
  take(given, "client_mode", o.client_mode);
  take(given, "data_dir", o.data_dir);
  take(given, "agreed", o.agreed);
  take(given, "shutdown_timeout", o.shutdown_timeout);
  take(given, "log_level", o.log_level);
  if (log)
    o.around.log = log_to(std::move(log));
  return std::make_unique<a_node>(of(waiting([&] { return node::start(o); })));
}

/// Name, type, shape, and the address of the values.
using given_tensor =
  std::tuple<std::string, std::string, std::vector<std::uint64_t>, std::uintptr_t>;

tensor_type type_of(const std::string& name) {
  for (auto type : {tensor_type::float32, tensor_type::float64, tensor_type::float16})
    if (name == to_string(type))
      return type;
  return tensor_type::bfloat16;
}

std::vector<averaged_tensor> tensors_of(const std::vector<given_tensor>& rows, bool auxiliary) {
  std::vector<averaged_tensor> all;
  for (const auto& [name, type, shape, address] : rows)
    all.push_back(
      {name, type_of(type), shape, auxiliary ? nullptr : reinterpret_cast<void*>(address)});
  return all;
}

/// A function of Python that any thread may copy, and call with the GIL.
std::shared_ptr<const py::function> shared_function(py::function call) {
  return {new py::function{std::move(call)}, [](const py::function* last) {
            try {
              with_gil held;
              delete last;
            } catch (const std::runtime_error&) {
              // The program ends, and its memory with it.
            }
          }};
}

/// What `call` returns: metadata, the rows of the tensors, and the tensors, which it keeps alive.
/// Copies their values, as Python's threads change them.
averager_state state_of(const py::function& call) {
  with_gil held;
  averager_state state;
  try {
    auto [metadata, rows, owner] =
      call().cast<std::tuple<py::bytes, std::vector<given_tensor>, py::object>>();
    state.metadata = metadata.cast<std::string>();
    state.tensors = tensors_of(rows, false);
    auto copies = std::make_shared<std::deque<std::vector<std::byte>>>();
    for (auto& tensor : state.tensors) {
      const auto* from = static_cast<const std::byte*>(tensor.values);
      auto size = tensor.elements() * size_of(tensor.type);
      tensor.values = copies->emplace_back(from, from + size).data();
    }
    state.memory = std::move(copies);
  } catch (const std::exception& thrown) { // its text needs the GIL
    throw std::runtime_error{thrown.what()};
  }
  return state;
}

/// Metadata, and of each tensor name, type, shape and values.
py::tuple load_state(const an_averager& to, double timeout, std::uint64_t bytes_max) {
  auto state = of(waiting(
    to, [&](averager& mine) { return mine.load_state_from_peers(in_ms(timeout), bytes_max); }));
  py::list tensors;
  for (const auto& tensor : state.tensors)
    tensors.append(py::make_tuple(tensor.name, std::string{to_string(tensor.type)}, tensor.shape,
                                  py::bytearray(static_cast<const char*>(tensor.values),
                                                tensor.elements() * size_of(tensor.type))));
  return py::make_tuple(py::bytes(state.metadata), tensors);
}

std::unique_ptr<an_averager> add(const a_node& peer, const py::dict& given,
                                 const std::vector<given_tensor>& tensors,
                                 std::optional<py::function> get_current_state) {
  averager_options o;
  take(given, "name", o.name);
  take(given, "target_group_size", o.target_group_size);
  take(given, "min_group_size", o.min_group_size);
  take(given, "matchmaking_time", o.matchmaking_time);
  take(given, "request_timeout", o.request_timeout);
  take(given, "group_bits", o.group_bits);
  take(given, "allreduce_timeout", o.allreduce_timeout);
  take(given, "sender_timeout", o.sender_timeout);
  take(given, "reducer_timeout", o.reducer_timeout);
  take(given, "alpha", o.alpha);
  take(given, "part_size_bytes", o.part_size_bytes);
  take(given, "codec", o.codec);
  take(given, "bandwidth", o.bandwidth);
  take(given, "min_vector_size", o.min_vector_size);
  take(given, "auxiliary", o.auxiliary);
  take(given, "retries", o.retries);
  take(given, "allow_state_sharing", o.allow_state_sharing);
  take(given, "state_sharing_priority", o.state_sharing_priority);
  take(given, "declare_state_period", o.declare_state_period);
  if (get_current_state)
    o.get_current_state = [call = shared_function(std::move(*get_current_state))] {
      return state_of(*call);
    };
  auto all = tensors_of(tensors, o.auxiliary);
  return std::make_unique<an_averager>(
    of(waiting(peer, [&](node& to) { return averager::add(to, o, std::move(all)); })));
}

std::unique_ptr<a_step> begin(const an_averager& with, const py::dict& given) {
  average_options o;
  take(given, "weight", o.weight);
  take(given, "timeout", o.timeout);
  take(given, "expected_peers", o.expected_peers);
  take(given, "keep_group", o.keep_group);
  take(given, "gather", o.gather);
  if (given.contains("scheduled_time")) {
    auto nanoseconds = given["scheduled_time"].cast<double>() * 1e9;
    o.scheduled_time =
      swarm_time_from(static_cast<std::int64_t>(std::clamp(nanoseconds, 0.0, 9e18)));
  }
  take(given, "allow_retries", o.allow_retries);
  take(given, "require_trigger", o.require_trigger);
  return std::make_unique<a_step>(of(waiting(with, [&](averager& to) { return to.begin(o); })));
}

/// Waits in slices, so that handlers of signals run. None: the step goes on.
py::object wait(const a_step& step, std::optional<double> timeout) {
  constexpr auto slice = std::chrono::milliseconds{100};
  auto& of_step = step.get();
  auto end = std::chrono::steady_clock::now() + in_ms(timeout.value_or(1e9));
  for (;;) {
    auto left = std::chrono::ceil<milliseconds>(end - std::chrono::steady_clock::now());
    // Before: it may end between a wait that was too short and the question.
    bool has_ended = of_step.stage() == step_stage::done;
    auto ended = waiting([&] { return of_step.result(std::clamp(left, milliseconds{0}, slice)); });
    if (!ended && ended.error().code == ec::not_ready && !has_ended) {
      if (PyErr_CheckSignals() != 0)
        throw py::error_already_set{};
      if (left <= milliseconds{0})
        return py::none();
      continue;
    }
    auto report = of(std::move(ended));
    py::dict out;
    py::list contributors;
    for (const auto& peer : report.contributors)
      contributors.append(to_string(peer));
    py::dict gathered;
    for (const auto& [peer, text] : report.gathered)
      gathered[py::str(to_string(peer))] = py::bytes(text);
    out["contributors"] = contributors;
    out["weight_sum"] = report.weight_sum;
    out["all_took_part"] = report.all_took_part;
    out["seconds"] = report.seconds;
    out["gathered"] = gathered;
    return out;
  }
}

/// Of `of`, by subkey.
std::map<std::string, py::bytes> get(const a_node& peer, const std::string& key, double timeout) {
  std::map<std::string, py::bytes> all;
  for (const auto& [subkey, value] :
       of(waiting(peer, [&](node& mine) { return dht{mine}.get(key, in_ms(timeout)); })))
    all.emplace(subkey, py::bytes(value));
  return all;
}

} // namespace

void bind_nodes(py::module_& m) {
  py::class_<a_node>(m, "Node")
    .def(py::init(&start), py::arg("options"), py::arg("log") = py::none())
    .def_property_readonly("id", [](const a_node& n) { return to_string(n.get().id()); })
    .def_property_readonly("address", [](const a_node& n) { return n.get().address(); })
    .def_property_readonly("addresses", [](const a_node& n) { return n.get().addresses(); })
    .def("status_json",
         [](const a_node& n) { return waiting(n, [](node& peer) { return peer.status_json(); }); })
    .def(
      "wait_until_ready",
      [](const a_node& n, double timeout) {
        check(waiting(n, [&](node& peer) { return peer.wait_until_ready(in_ms(timeout)); }));
      },
      py::arg("timeout"))
    .def(
      "leave",
      [](const a_node& n, double timeout) {
        check(waiting(n, [&](node& peer) { return peer.leave(in_ms(timeout)); }));
      },
      py::arg("timeout"))
    .def(
      "put",
      [](const a_node& n, const std::string& key, const std::string& subkey, const py::bytes& value,
         double ttl, double timeout) {
        auto text = value.cast<std::string>();
        check(waiting(n, [&](node& peer) {
          return dht{peer}.put(key, subkey, text, in_ms(ttl), in_ms(timeout));
        }));
      },
      py::arg("key"), py::arg("subkey"), py::arg("value"), py::arg("ttl"), py::arg("timeout"))
    .def("get", &get, py::arg("key"), py::arg("timeout"));

  py::class_<an_averager>(m, "Averager")
    .def(py::init(&add), py::arg("node"), py::arg("options"), py::arg("tensors"),
         py::arg("get_current_state") = py::none())
    .def("begin", &begin, py::arg("options"))
    .def("hold",
         [](const an_averager& a) {
           return std::make_unique<held_tensors>(
             waiting(a, [](averager& mine) { return mine.lock(); }));
         })
    .def("load_state", &load_state, py::arg("timeout"), py::arg("bytes_max"))
    .def(
      "allow_state_sharing",
      [](const an_averager& a, bool allowed) {
        check(waiting(a, [&](averager& mine) { return mine.allow_state_sharing(allowed); }));
      },
      py::arg("allowed"))
    .def(
      "set_state_sharing_priority",
      [](const an_averager& a, double priority) {
        check(
          waiting(a, [&](averager& mine) { return mine.set_state_sharing_priority(priority); }));
      },
      py::arg("priority"))
    .def("end",
         [](const an_averager& a) { check(waiting(a, [](averager& mine) { return mine.end(); })); })
    .def_property_readonly("group_bits",
                           [](const an_averager& a) {
                             return of(
                               waiting(a, [](averager& mine) { return mine.group_bits(); }));
                           })
    .def(
      "set_group_bits",
      [](const an_averager& a, const std::string& bits) {
        check(waiting(a, [&](averager& mine) { return mine.set_group_bits(bits); }));
      },
      py::arg("bits"));

  py::class_<held_tensors>(m, "HeldTensors").def("release", [](held_tensors& h) {
    h.lock.unlock();
  });

  py::class_<a_step>(m, "Step")
    .def_property_readonly("stage",
                           [](const a_step& s) { return std::string{to_string(s.get().stage())}; })
    .def("allow_allreduce",
         [](const a_step& s) {
           check(waiting(s, [](step_control& step) { return step.allow_allreduce(); }));
         })
    .def("cancel", [](const a_step& s) { s.get().cancel(); })
    .def("wait", &wait, py::arg("timeout") = py::none());
}

} // namespace waggle::python
