// Loads a platform file and runs flows on it: prints one finish per flow, in seconds.
//
// Arguments: the platform.  Standard input: source destination bytes start-seconds, a line each,
// in order of their starts.

#include <cstdint>
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include <simgrid/s4u.hpp>

namespace sg4 = simgrid::s4u;

namespace {

struct Flow {
  std::string source;
  std::string destination;
  std::uint64_t bytes;
  double start_s;
};

std::vector<Flow> flows;

void run_all() {
  std::vector<sg4::CommPtr> comms;
  double now_s = 0.0;
  for (const Flow& flow : flows) {
    if (flow.start_s > now_s) {
      now_s = flow.start_s;
      sg4::this_actor::sleep_until(now_s);
    }
    comms.push_back(sg4::Comm::sendto_async(sg4::Host::by_name(flow.source),
                                            sg4::Host::by_name(flow.destination), flow.bytes));
  }
  sg4::Comm::wait_all(comms);
  for (const auto& comm : comms) std::printf("%.17g\n", comm->get_finish_time());
}

}  // namespace

int main(int argc, char** argv) {
  sg4::Engine engine(&argc, argv);
  engine.load_platform(argv[1]);
  Flow flow;
  while (std::cin >> flow.source >> flow.destination >> flow.bytes >> flow.start_s)
    flows.push_back(flow);
  sg4::Actor::create("sender", engine.get_all_hosts().front(), run_all);
  engine.run();
  return 0;
}
