// Only the module itself: it is built in its own folder, with the versions of its own go.mod and go.sum, whose hash is here.
module keda

go 1.26.0

require github.com/kedacore/keda/v2 v2.21.0
