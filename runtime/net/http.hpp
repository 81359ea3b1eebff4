#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/core/time.hpp"

namespace waggle::net {

struct http_request {
  std::string method; // "GET"
  std::string target; // "/metrics"; includes the query string, if any
  std::string host{}; // the Host header; empty: none
  bool local = true;  // it came over loopback, so from this machine
  std::string last_event_id{};
  /// A browser sent it for a page of another origin.
  bool cross_origin = false;
  bool gzip = false; // the client decompresses
  std::string if_none_match{};
  bool member = false; // the client knows the key of the run (page_proof.hpp)
};

/// The next bytes of a body without end; empty: there is nothing new yet. Asked at most ten times a
/// second, only while nothing waits to be sent, on the thread that serves HTTP: must not throw.
using http_stream = std::function<std::string(steady_time now)>;

struct http_response {
  unsigned status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body{};
  http_stream stream{}; // not empty: the body is followed by what it returns, until the client ends
  std::string cache = "no-store";                             // Cache-Control
  std::vector<std::pair<std::string, std::string>> headers{}; // further ones
};

/// Answers plain HTTP on the peers' port. Called on the thread that serves HTTP: must not throw.
using http_handler = std::function<http_response(const http_request&)>;

} // namespace waggle::net
