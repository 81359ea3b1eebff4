// The only file that compiles the code of Asio and Beast; the others only declare it.
#include <boost/asio/impl/src.hpp>
#include <boost/beast/src.hpp>
