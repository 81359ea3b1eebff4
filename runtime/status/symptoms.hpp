#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "runtime/core/notice.hpp"

namespace waggle {

enum class severity : std::uint8_t { good, warning, bad };
std::string_view to_string(severity x);

/// Something that can be wrong with a peer or its run. Pages, /readyz, `waggle status`, `waggle
/// doctor` and the runbook of the alerts say it with this row.
struct symptom {
  /// What is seen of it: a sentence without numbers (empty: `seen` is one), and what was measured.
  struct sight {
    std::string says;
    std::string seen;
  };

  std::string_view matter; // notice::matter
  severity how;
  std::string_view says;
  /// What to do; a notice may know better. The runbook of `alert` has it, too.
  std::string_view cure;
  std::string_view alert; // of dashboards/alerts.yml; empty: none
  /// Finds it in /api/v1/status. Null: somebody else does, and gives a notice of this matter.
  std::vector<sight> (*find)(const nlohmann::ordered_json& status) = nullptr;
};
std::span<const symptom> symptoms();
/// Of a matter that is not in the table: the last row, of a setting.
const symptom& symptom_of(std::string_view matter);

struct finding_of_peer {
  const symptom* row;
  notice what;      // with a cure, if there is any
  std::string says; // a short sentence
};
/// Those of a status, and of its `notices`; the worst first. What is malformed is left out.
std::vector<finding_of_peer> symptoms_in(const nlohmann::ordered_json& status);

/// By matter: since when it is seen, Unix milliseconds.
using symptom_times = std::map<std::string, std::int64_t>;
/// Makes the status's `notice` and `notices` of all of them. @param since is kept up to date.
void show_symptoms(nlohmann::ordered_json& status, symptom_times* since = nullptr,
                   std::int64_t now = 0);

} // namespace waggle
