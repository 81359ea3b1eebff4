#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "runtime/net/http.hpp"

namespace waggle {

class recording; // runtime/watch/replay.hpp

/// To whom the page at `/` and its stream of events are served (--pages).
enum class page_audience { all, local, none };

/// The name of the option's value. Unknown: `all`; the option table accepts no other.
page_audience parse_page_audience(std::string_view name);

/// A file of dashboards/live, as it stands in the program.
struct live_file {
  std::string_view path; // "/live/app.js"; "/" for the page itself
  std::string_view type;
  std::string_view tag; // ETag: of the file's bytes
  std::span<const unsigned char> gzip;
};

/// All files, sorted by path. The build compresses them, and stops where one is larger than
/// dashboards/live/live_files.cmake allows.
std::span<const live_file> live_files();

/// Whether `route` (a path without a query) is one of the page's.
bool is_live_route(std::string_view route);

/// The page at `/` and the files that it loads. Anything else below /live is 404. Decompresses for
/// clients that do not accept gzip. The content may be stored, but must be validated by its ETag
/// before each use: peers of several versions may follow each other at one address.
net::http_response live_page(const net::http_request& request);

/// The page of a recording, and /api/v1/events[?QUERY] (replay_request), to this machine only: a
/// recording names its run, which strangers must not learn.
net::http_response replay_page(const std::shared_ptr<const recording>& from,
                               const net::http_request& request);

} // namespace waggle
