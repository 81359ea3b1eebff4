#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/net/transport.hpp"
#include "runtime/wire/convert.hpp"

namespace waggle::testing {

/// A link with a peer on `host`, which keeps what is sent.
class hosted_link final : public net::link {
public:
  hosted_link(peer_record remote, std::string host, bool outbound)
    : remote_(std::move(remote)), host_(std::move(host)), outbound_(outbound) {}

  [[nodiscard]] const peer_record& remote() const override { return remote_; }
  [[nodiscard]] bool outbound() const override { return outbound_; }
  [[nodiscard]] std::string host() const override { return host_; }
  [[nodiscard]] std::optional<net::socket_ends> ends() const override { return between; }
  void start(std::shared_ptr<net::link_listener>) override {}
  bool send(net::frame f) override {
    sent_.push_back(f.header);
    return true;
  }
  void grant(std::size_t) override {}
  [[nodiscard]] bool idle() const override { return true; }
  void close(failure) override {}

  /// The events of this type that it sent.
  template <class Event>
  [[nodiscard]] std::vector<Event> all() const {
    std::vector<Event> out;
    for (const auto& header : sent_)
      if (auto got = wire::decode(header, 0))
        if (const auto* event = std::get_if<wire::event>(&*got))
          if (const auto* note = std::get_if<Event>(event))
            out.push_back(*note);
    return out;
  }
  [[nodiscard]] std::vector<wire::reach_note> notes() const { return all<wire::reach_note>(); }

  std::optional<net::socket_ends> between; // its sockets

private:
  std::vector<std::string> sent_;
  peer_record remote_;
  std::string host_;
  bool outbound_;
};

} // namespace waggle::testing
