#include "runtime/net/name_resolver.hpp"

#include <algorithm>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>

namespace waggle::net {

namespace asio = boost::asio;
using tcp = asio::ip::tcp;

struct name_resolver::inbox {
  std::mutex mutex;
  name_resolver* owner = nullptr; // null once it has stopped
};

host_lookup system_lookup() {
  return [](const std::string& host) -> result<host_addresses> {
    asio::io_context io;
    boost::system::error_code error;
    host_addresses addresses;
    for (const auto& found : tcp::resolver{io}.resolve(host, std::string{}, error))
      addresses.push_back(found.endpoint().address());
    if (addresses.empty())
      return failure{ec::unreachable,
                     "the name '" + host + "' is not found (" + error.message() + ")"};
    return addresses;
  };
}

host_addresses in_dialling_order(const host_addresses& found, std::size_t count_max) {
  host_addresses first; // of the family that the resolver prefers
  host_addresses second;
  for (const auto& address : found) {
    auto& family = address.is_v6() == found.front().is_v6() ? first : second;
    if (std::find(family.begin(), family.end(), address) == family.end())
      family.push_back(address);
  }
  host_addresses out;
  for (std::size_t i = 0; i < std::max(first.size(), second.size()); ++i)
    for (const auto* family : {&first, &second})
      if (i < family->size() && out.size() < count_max)
        out.push_back((*family)[i]);
  return out;
}

name_resolver::name_resolver(asio::io_context& io, host_lookup lookup, std::size_t names_max)
  : io_(io), lookup_(lookup ? std::move(lookup) : system_lookup()), names_max_(names_max),
    inbox_(std::make_shared<inbox>()) {
  inbox_->owner = this;
}

void name_resolver::resolve(const std::string& host, milliseconds timeout, on_resolved done) {
  auto refuse = [&](std::string why) {
    asio::post(
      io_, [done = std::move(done), why = failure{ec::overloaded, std::move(why)}] { done(why); });
  };
  bool is_new = !pending_.contains(host);
  if (is_new && pending_.size() >= names_max_)
    return refuse("the name '" + host + "' has to wait: " + std::to_string(pending_.size())
                  + " others are being looked up without an answer");
  if (is_new)
    try {
      std::thread{[to = inbox_, lookup = lookup_, host] {
        result<host_addresses> found = failure{ec::internal, "looking up a name failed"};
        try {
          found = lookup(host);
        } catch (const std::exception& error) {
          found = failure{ec::internal, error.what()};
        }
        std::lock_guard guard{to->mutex};
        if (to->owner != nullptr)
          asio::post(to->owner->io_, [to, host, found = std::move(found)] {
            if (to->owner != nullptr) // only this thread sets it to null
              to->owner->deliver(host, found);
          });
      }}.detach();
    } catch (const std::system_error& error) {
      return refuse("no thread to look up '" + host + "': " + error.what());
    }
  auto made = std::make_shared<request>(request{std::move(done), asio::steady_timer{io_, timeout}});
  made->deadline.async_wait(
    [this, weak = std::weak_ptr{made}, host, timeout](const boost::system::error_code& cancelled) {
      auto late = cancelled ? nullptr : weak.lock();
      if (!late)
        return;
      if (auto of_host = pending_.find(host); of_host != pending_.end())
        std::erase(of_host->second, late); // the host stays: it counts the look-up that runs
      if (auto done = std::exchange(late->done, nullptr))
        done(failure{ec::timeout, "the name '" + host + "' was not resolved within "
                                    + std::to_string(timeout.count()) + " ms"});
    });
  pending_[host].push_back(std::move(made));
}

void name_resolver::stop() {
  {
    std::lock_guard guard{inbox_->mutex};
    inbox_->owner = nullptr;
  }
  pending_.clear();
}

void name_resolver::deliver(const std::string& host, const result<host_addresses>& found) {
  auto waiting = pending_.extract(host);
  if (waiting.empty())
    return;
  for (const auto& each : waiting.mapped())
    if (auto done = std::exchange(each->done, nullptr))
      done(found);
}

} // namespace waggle::net
