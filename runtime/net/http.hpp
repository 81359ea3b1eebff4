#pragma once

#include <functional>
#include <string>

namespace waggle::net {

struct http_request {
  std::string method; // "GET"
  std::string target; // "/metrics"; includes the query string, if any
  std::string host{}; // the Host header; empty: none
  bool local = true;  // it came over loopback, so from this machine
};

struct http_response {
  unsigned status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

/// Answers plain HTTP on the peers' port. Called on the thread that serves HTTP: must not throw.
using http_handler = std::function<http_response(const http_request&)>;

} // namespace waggle::net
