#pragma once

#include <set>
#include <string>
#include <string_view>

#include "runtime/net/http.hpp"

namespace waggle::net {

/// Whether `request` is answered to a browser that believes to be at `request.host`.
///
/// A web page can let its own name point to this peer (DNS rebinding); the operator's browser then
/// reads this peer's pages for it. Such a page has a name that the public DNS knows. So the
/// documents about the run (/api/…, /sd), and the page that shows them (/, /live/…), are refused to
/// hosts that are neither addresses, nor names that only a private network knows (`localhost`,
/// names without a dot, those below `private_suffixes`), nor `own` names of the operator. The
/// metrics and the two health pages are answered to every host: scrapers and probes use whatever
/// name their service has, and the pages name neither peers nor addresses.
bool answers_host(const http_request& request, const std::set<std::string>& own);

/// The name in a Host header: without port, in lower case.
std::string host_name(std::string_view header);

} // namespace waggle::net
