// Measures the round trips of control frames on a link while bulk frames fill it:
//
//   link_probe listen HOST:PORT                              runs until it is killed
//   link_probe dial HOST:PORT SECONDS [CONGESTION [BYTES]]   bulk frames of BYTES (512 KiB)
//   link_probe idle HOST:PORT LINKS                          so many links at once
//
// Prints how long the dial took until a frame could be sent, and until one had come back; the round
// trips without and with bulk data, and the throughput of the bulk data. Of idle links: what they
// make this process take, heap and resident, once each has carried a frame.

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <future>
#include <iostream>
#include <mutex>
#include <thread>

#include <malloc.h>

#include "runtime/net/tcp_transport.hpp"
#include "tests/support/link_events.hpp"

namespace {

using namespace waggle;

steady_time now() {
  return std::chrono::steady_clock::now();
}

/// Opens a transport with an identity made from `seed`; the two ends do not know each other.
std::shared_ptr<net::transport> open(std::uint64_t seed, const std::string& congestion,
                                     net::net_events events) {
  auto self = identity::from_seed(seed);
  net::tcp_transport_config config;
  config.run_id = "link-probe";
  config.self = self;
  config.verifier = make_plain_verifier();
  config.record = {self->id(), self->key(), {}, false};
  config.congestion = congestion;
  config.shared_memory = false;
  if (const char* encrypt = std::getenv("BENCH_ENCRYPT"))
    config.encrypts = std::string_view{encrypt} != "never";
  config.events = std::move(events);
  return net::make_tcp_transport(std::move(config));
}

int listen(const endpoint& where) {
  auto wire = open(1, "auto", {});
  auto bound = wire->listen({where}, [](const std::shared_ptr<net::link>& link) {
    auto events = std::make_shared<net::link_events>();
    // The handler owns the link, so the link lives until it is closed.
    events->frame_arrived = [link](net::frame f) {
      if (f.body.empty())
        link->send(std::move(f));
      else
        link->grant(f.body.size);
    };
    link->start(std::move(events));
  });
  if (!bound) {
    std::cerr << "link_probe: " << bound.error().detail << "\n";
    return 1;
  }
  std::promise<void>{}.get_future().wait(); // until this process is killed
  return 0;
}

std::string quantiles(std::vector<double> x) {
  if (x.empty())
    return "no reply";
  std::sort(x.begin(), x.end());
  char out[120];
  std::snprintf(out, sizeof out, "median %.1f ms, 90%% %.1f, 99%% %.1f, worst %.1f (%zu)",
                x[x.size() / 2], x[x.size() * 9 / 10], x[x.size() * 99 / 100], x.back(), x.size());
  return out;
}

/// The other end may still be starting. `began`: the dial that was answered.
std::shared_ptr<net::link> dial_until_answered(net::transport& wire, const endpoint& where,
                                               steady_time& began) {
  result<std::shared_ptr<net::link>> link{failure{}};
  for (auto patience = now() + 5s; !link && now() < patience;) {
    std::promise<result<std::shared_ptr<net::link>>> dialled;
    began = now();
    wire.dial({where, {}, {}}, 5s, [&](auto outcome) { dialled.set_value(std::move(outcome)); });
    link = dialled.get_future().get();
    if (!link)
      std::this_thread::sleep_for(50ms);
  }
  if (!link)
    throw std::runtime_error(link.error().detail);
  return *link;
}

std::size_t heap_bytes() {
  auto all = ::mallinfo2();
  return all.uordblks + all.hblkhd;
}

std::size_t resident_bytes() {
  std::size_t pages = 0;
  std::ifstream{"/proc/self/statm"} >> pages >> pages;
  return pages * 4096;
}

/// What the first link takes is not counted: the next ones find it there.
int idle(const endpoint& where, std::size_t count) {
  auto wire = open(2, "auto", {});
  std::atomic<std::size_t> answered{0};
  std::vector<std::shared_ptr<net::link>> links;
  std::size_t heap = 0;
  std::size_t resident = 0;
  for (std::size_t i = 0; i <= count; ++i) {
    steady_time began;
    auto made = dial_until_answered(*wire, where, began);
    auto events = std::make_shared<net::link_events>();
    events->frame_arrived = [&](const net::frame&) { ++answered; };
    made->start(events);
    made->send({"idle", {}});
    links.push_back(std::move(made));
    for (auto patience = now() + 5s; answered <= i && now() < patience;)
      std::this_thread::sleep_for(1ms);
    if (i == 0) {
      heap = heap_bytes();
      resident = resident_bytes();
    }
  }
  std::this_thread::sleep_for(1s);
  std::cout << count << (links.front()->facts().encrypted ? " encrypted" : " plain")
            << " links: heap " << heap_bytes() - heap << " bytes, resident "
            << resident_bytes() - resident << std::endl;
  wire->stop();
  return answered == count + 1 ? 0 : 1;
}

int dial(const endpoint& where, double seconds, const std::string& congestion,
         std::size_t body_bytes) {
  std::mutex mutex;
  std::condition_variable changed;
  std::uint64_t written = 0; // bytes; guarded by mutex, like `trips`
  std::vector<double> trips;
  bool is_first = true;
  net::net_events events;
  events.transferred = [&](bool outbound, bool data, std::size_t bytes) {
    if (!outbound || !data)
      return;
    std::lock_guard lock{mutex};
    written += bytes;
    changed.notify_one();
  };
  auto wire = open(2, congestion, std::move(events));
  steady_time dialled;
  auto link = dial_until_answered(*wire, where, dialled);
  auto opened = now();
  std::promise<steady_time> first;
  auto handlers = std::make_shared<net::link_events>();
  handlers->frame_arrived = [&](const net::frame& f) {
    steady_time::rep sent = 0;
    std::memcpy(&sent, f.header.data(), sizeof sent);
    auto trip = now().time_since_epoch() - steady_time::duration{sent};
    std::lock_guard lock{mutex};
    trips.push_back(std::chrono::duration<double, std::milli>(trip).count());
    if (std::exchange(is_first, false))
      first.set_value(now());
  };
  link->start(std::move(handlers));

  auto ping_for = [&](double how_long) {
    std::unique_lock lock{mutex};
    trips.clear();
    lock.unlock();
    for (auto end = now() + std::chrono::duration<double>{how_long}; now() < end;) {
      auto sent = now().time_since_epoch().count();
      link->send({std::string(reinterpret_cast<const char*>(&sent), sizeof sent), {}});
      std::this_thread::sleep_for(10ms);
    }
    lock.lock();
    return quantiles(trips);
  };
  auto quiet = ping_for(1);
  auto ms_after_dial = [&](steady_time when) {
    return std::chrono::duration<double, std::milli>(when - dialled).count();
  };
  std::cout << (link->facts().encrypted ? "encrypted" : "plain") << "; a frame could be sent after "
            << ms_after_dial(opened) << " ms, and was back after "
            << ms_after_dial(first.get_future().get()) << " ms\nidle: " << quiet << std::endl;

  auto memory = std::make_shared<std::vector<std::byte>>(body_bytes);
  bool stop = false; // guarded by mutex
  std::thread filler{[&] {
    std::uint64_t sent = 0;
    for (;;) {
      std::unique_lock lock{mutex};
      changed.wait(lock, [&] { return stop || sent < written + 16 * body_bytes; });
      if (stop)
        return;
      lock.unlock();
      link->send({"bulk", payload_of(std::shared_ptr<const std::vector<std::byte>>{memory})});
      sent += body_bytes;
    }
  }};
  ping_for(1); // until the congestion control reaches its rate
  std::unique_lock lock{mutex};
  auto before = written;
  lock.unlock();
  auto began = now();
  auto loaded = ping_for(seconds);
  lock.lock();
  auto rate =
    static_cast<double>(written - before) / std::chrono::duration<double>(now() - began).count();
  stop = true;
  changed.notify_one();
  lock.unlock();
  filler.join();
  std::cout << "full: " << loaded << ", " << rate * 8 / 1e6 << " Mbit/s" << std::endl;
  link->close({ec::none, {}});
  wire->stop();
  return 0;
}

} // namespace

int main(int argc, char** argv) try {
  auto command = argc > 2 ? std::string{argv[1]} : std::string{};
  auto where = argc > 2 ? parse_endpoint(argv[2]) : result<endpoint>{failure{}};
  if (where && command == "listen" && argc == 3)
    return listen(*where);
  if (where && command == "dial" && argc >= 4 && argc <= 6)
    return dial(*where, std::atof(argv[3]), argc > 4 ? argv[4] : "auto",
                argc > 5 ? std::strtoul(argv[5], nullptr, 10) : 512_KiB);
  if (where && command == "idle" && argc == 4)
    return idle(*where, std::strtoul(argv[3], nullptr, 10));
  std::cerr << "usage: link_probe listen HOST:PORT\n"
               "       link_probe dial HOST:PORT SECONDS [CONGESTION [BYTES]]\n"
               "       link_probe idle HOST:PORT LINKS\n";
  return 2;
} catch (const std::exception& e) {
  std::cerr << "link_probe: " << e.what() << "\n";
  return 1;
}
