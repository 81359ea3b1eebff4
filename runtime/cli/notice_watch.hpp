#pragma once

#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "runtime/config/values.hpp"
#include "runtime/core/result.hpp"
#include "runtime/net/http.hpp"

namespace waggle {

/// What the answers of a cloud's page mean, which exists from the notice on.
class notice_page {
public:
  [[nodiscard]] static bool is_notice(const result<net::http_response>& answer) {
    return answer && answer->status == 200;
  }
  /// A sentence, if nobody can know from this answer whether there is a notice; once.
  [[nodiscard]] std::optional<std::string> warning(const std::string& url,
                                                   const result<net::http_response>& answer);

private:
  bool warned_ = false;
};

/// Asks that page every two seconds, in a thread of its own, until it is the notice.
class notice_watch {
public:
  static constexpr milliseconds every{2'000};
  static constexpr milliseconds patience{1'000};

  /// Both functions are called on that thread. REQUIRES: parse_url takes `url`.
  notice_watch(std::string url, std::function<void()> on_notice,
               std::function<void(const std::string&)> warn);

private:
  std::jthread thread_;
};

} // namespace waggle
