// Prints the /metrics page of a peer that has just started, so that promtool can check it.

#include <iostream>

#include "runtime/metrics/metric_families.hpp"

int main() {
  waggle::metric_families families{std::make_shared<prometheus::Registry>(), "run-1a2b3c4d", "ann"};
  families.show_rounds("gradients");
  std::cout << families.text();
}
