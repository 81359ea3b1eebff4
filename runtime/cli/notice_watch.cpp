#include "runtime/cli/notice_watch.hpp"

#include <condition_variable>
#include <mutex>
#include <utility>

#include "runtime/core/check.hpp"
#include "runtime/net/http_client.hpp"

namespace waggle {

std::optional<std::string> notice_page::warning(const std::string& url,
                                                const result<net::http_response>& answer) {
  constexpr unsigned no_page = 404;
  if (is_notice(answer) || (answer && answer->status == no_page) || warned_)
    return std::nullopt;
  warned_ = true;
  return "--notice-url " + url
         + " gives no answer that says whether this machine will be taken away ("
         + (answer ? "status " + std::to_string(answer->status) : answer.error().detail)
         + "): it is asked again every two seconds, and TERM is a notice, too";
}

notice_watch::notice_watch(std::string url, std::function<void()> on_notice,
                           std::function<void(const std::string&)> warn)
  : thread_([url = std::move(url), on_notice = std::move(on_notice),
             warn = std::move(warn)](const std::stop_token& stop) {
      auto page = parse_url(url);
      WAGGLE_CHECK(page.ok(), url);
      notice_page seen;
      std::mutex mutex;
      std::condition_variable_any wake;
      std::unique_lock lock{mutex};
      while (!stop.stop_requested()) {
        auto answer = net::http_get(page->where, page->target, patience);
        if (notice_page::is_notice(answer))
          return on_notice();
        if (auto sentence = seen.warning(url, answer))
          warn(*sentence);
        wake.wait_for(lock, stop, every, [] { return false; });
      }
    }) {}

} // namespace waggle
