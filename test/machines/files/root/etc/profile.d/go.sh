export PATH=$PATH:/usr/local/go/bin
