from .transport import Transport
class NCCLTransport(Transport):
  @classmethod
  def of_world(cls, *a): raise NotImplementedError
