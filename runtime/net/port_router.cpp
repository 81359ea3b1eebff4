// How routers are asked for ports: NAT-PMP, which answers at once or not at all, then UPnP.

#include <algorithm>
#include <array>
#include <string>

#include "runtime/net/port_mapping.hpp"

#if WAGGLE_PORT_MAPPING
#include <arpa/inet.h>
#include <miniupnpc/miniupnpc.h>
#include <miniupnpc/upnpcommands.h>
#include <miniupnpc/upnperrors.h>
#include <natpmp.h>
#include <poll.h>
#endif

namespace waggle::net {

#if WAGGLE_PORT_MAPPING

namespace {

constexpr milliseconds patience{1'500}; // for one answer
constexpr int searched_ms = 1'500;      // for routers that speak UPnP
constexpr std::uint16_t ports_tried = 8;
constexpr int port_taken = 718; // ConflictInMappingEntry

/// One conversation with the default gateway.
class natpmp_session {
public:
  natpmp_session() : open_(initnatpmp(&state_, 0, 0) == 0) {}
  ~natpmp_session() {
    if (open_)
      closenatpmp(&state_);
  }
  natpmp_session(const natpmp_session&) = delete;
  natpmp_session& operator=(const natpmp_session&) = delete;

  /// The gateway's address on the internet.
  std::optional<std::string> outside() {
    if (!open_ || sendpublicaddressrequest(&state_) < 0)
      return {};
    auto answer = wait(NATPMP_RESPTYPE_PUBLICADDRESS);
    std::array<char, INET_ADDRSTRLEN> text{};
    if (!answer
        || inet_ntop(AF_INET, &answer->pnu.publicaddress.addr, text.data(), text.size()) == nullptr)
      return {};
    return std::string{text.data()};
  }
  /// The port there; `lease` 0 ends the mapping.
  std::optional<std::uint16_t> map(std::uint16_t port, std::chrono::seconds lease) {
    auto asked = static_cast<std::uint16_t>(lease.count() == 0 ? 0 : port);
    auto seconds = static_cast<std::uint32_t>(lease.count());
    if (!open_ || sendnewportmappingrequest(&state_, NATPMP_PROTOCOL_TCP, port, asked, seconds) < 0)
      return {};
    auto answer = wait(NATPMP_RESPTYPE_TCPPORTMAPPING);
    if (!answer)
      return {};
    return answer->pnu.newportmapping.mappedpublicport;
  }

private:
  /// One of this type: an answer to an earlier question may come twice.
  std::optional<natpmpresp_t> wait(int type) {
    auto until = std::chrono::steady_clock::now() + patience;
    while (std::chrono::steady_clock::now() < until) {
      timeval left{};
      getnatpmprequesttimeout(&state_, &left);
      auto wait_ms =
        std::clamp<std::int64_t>(left.tv_sec * 1'000 + left.tv_usec / 1'000, 1, patience.count());
      pollfd readable{state_.s, POLLIN, 0};
      ::poll(&readable, 1, static_cast<int>(wait_ms));
      natpmpresp_t answer{};
      auto got = readnatpmpresponseorretry(&state_, &answer);
      if (got == 0 && answer.type == type)
        return answer;
      if (got != 0 && got != NATPMP_TRYAGAIN)
        return {};
    }
    return {};
  }

  natpmp_t state_{};
  bool open_;
};

/// A gateway that speaks UPnP, and where this machine is in its network.
struct upnp_gateway {
  std::string control, service, own_address;

  static std::optional<upnp_gateway> find() {
    int error = 0;
    auto* devices = upnpDiscover(searched_ms, nullptr, nullptr, 0, 0, 2, &error);
    UPNPUrls urls{};
    IGDdatas data{};
    std::array<char, 64> own{};
#if MINIUPNPC_API_VERSION >= 18
    auto found = UPNP_GetValidIGD(devices, &urls, &data, own.data(), own.size(), nullptr, 0);
#else
    auto found = UPNP_GetValidIGD(devices, &urls, &data, own.data(), own.size());
#endif
    std::optional<upnp_gateway> out;
    if (found == 1)
      out = upnp_gateway{urls.controlURL, data.first.servicetype, own.data()};
    if (found != 0)
      FreeUPNPUrls(&urls);
    freeUPNPDevlist(devices);
    return out;
  }
  /// Where `port` is mapped, at `outside` of the gateway or the next free port.
  [[nodiscard]] result<endpoint> map(std::uint16_t port, std::uint16_t outside,
                                     std::chrono::seconds lease) const {
    std::array<char, 64> address{};
    if (UPNP_GetExternalIPAddress(control.c_str(), service.c_str(), address.data())
        != UPNPCOMMAND_SUCCESS)
      return failure{ec::unreachable, "the router does not tell its address"};
    int code = 0;
    for (std::uint16_t i = 0; i < ports_tried && outside + i <= 65'535; ++i) {
      auto there = static_cast<std::uint16_t>(outside + i);
      code = UPNP_AddPortMapping(control.c_str(), service.c_str(), std::to_string(there).c_str(),
                                 std::to_string(port).c_str(), own_address.c_str(), "waggle", "TCP",
                                 nullptr, std::to_string(lease.count()).c_str());
      if (code == UPNPCOMMAND_SUCCESS)
        return endpoint{address.data(), there};
      if (code != port_taken)
        break;
    }
    const auto* text = strupnperror(code);
    return failure{ec::unreachable, std::string{"the router refuses: "}
                                      + (text != nullptr ? text : std::to_string(code).c_str())};
  }
  void unmap(std::uint16_t outside) const {
    (void)UPNP_DeletePortMapping(control.c_str(), service.c_str(), std::to_string(outside).c_str(),
                                 "TCP", nullptr);
  }
};

class asked_router final : public port_router {
public:
  result<endpoint> map(std::uint16_t port, std::chrono::seconds lease) override {
    {
      natpmp_session gateway;
      if (auto host = gateway.outside())
        if (auto there = gateway.map(port, lease)) {
          upnp_.reset();
          return endpoint{*host, *there};
        }
    }
    if (!upnp_)
      upnp_ = upnp_gateway::find();
    if (!upnp_)
      return failure{ec::unreachable, "no router answers to NAT-PMP or UPnP"};
    auto made = upnp_->map(port, outside_.value_or(port), lease);
    if (made)
      outside_ = made->port;
    else
      upnp_.reset();
    return made;
  }

  void unmap(std::uint16_t port) override {
    if (upnp_ && outside_)
      return upnp_->unmap(*outside_);
    natpmp_session gateway;
    (void)gateway.map(port, std::chrono::seconds{0});
  }

private:
  std::optional<upnp_gateway> upnp_;     // that has mapped the port
  std::optional<std::uint16_t> outside_; // there
};

} // namespace

std::shared_ptr<port_router> make_port_router() {
  return std::make_shared<asked_router>();
}

#else

std::shared_ptr<port_router> make_port_router() {
  return nullptr;
}

#endif

} // namespace waggle::net
