"""Handle the requests on views: their documents, their lines, the values of graphs, and the data of pictures."""
