module holdall/go

go 1.22
